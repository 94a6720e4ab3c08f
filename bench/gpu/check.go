package main

import (
	"context"
	"io"
)

func checkMain(c context.Context, args []string, stdout, stderr io.Writer) error { return nil }
