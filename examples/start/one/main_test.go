package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneProcessLearnsTheSine(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer func(was *os.File) { os.Stdout = was }(os.Stdout)
	os.Stdout = out
	main()
	require.NoError(t, out.Close())
	text, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^step \d00  loss (\d\.\d+)$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, lines, 5, "%s", text)
	loss, err := strconv.ParseFloat(lines[4][1], 64)
	require.NoError(t, err)
	require.Less(t, loss, 0.005)
}
