// Package names lists names in errors.
package names
