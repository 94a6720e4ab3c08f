package agent

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/internal/output"
	"github.com/weft-project/weft/internal/printable"
)

func TestNothingThatTheAgentSaysOrReportsOfOthersSteersATerminal(t *testing.T) {
	const steers = "\x1b]0;mine\a\x1b[2J\rweft: all is well\u009b31m\u202e"
	var out bytes.Buffer
	_, stderr := output.NewSinks(&out, &out)
	stderr.Say(steers)
	stderr.Drain()
	raw, err := json.Marshal(map[string]any{"message": map[string]any{"message": steers + "\nand more", "extraInfo": map[string]string{"py_callstack": steers}}})
	require.NoError(t, err)
	l := &output.Lines{Sink: output.Hidden(), Prefix: output.NewLabel(""), Keep: true}
	_, _ = l.Write([]byte("\tat " + steers + "\n"))
	f := Failure{Exit: Exit{Code: 1, PID: 7}, Stderr: l.Tail()}
	f.addErrorFile(raw, time.Time{}, time.Time{})
	for where, text := range map[string]string{"the agent": out.String(), "a failure in short": f.brief(), "its report": newWorkerError([]Failure{f}).Report()} {
		require.Contains(t, text, "mine", where)
		require.Equal(t, printable.Lines(text, len(text)), text, where)
	}
	require.Equal(t, "weft: ", out.String()[:6])
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
}
