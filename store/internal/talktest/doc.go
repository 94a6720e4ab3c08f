// Package talktest is what the tests of several of the store's packages use: bytes that are written
// as text, conversations that PyTorch's clients had, connections that send and expect bytes, random
// commands, and a model of the state done the dumb way.
package talktest
