// Package web serves a few pages over HTTP: health and metrics. Slow and silent clients lose their
// places to others, so they keep no probe out.
package web
