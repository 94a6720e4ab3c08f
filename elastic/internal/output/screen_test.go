package output

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gate is a writer whose reader takes nothing until it is opened.
type gate struct {
	came, open chan struct{}
	bytes.Buffer
}

func newGate() *gate { return &gate{came: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	g.came <- struct{}{}
	<-g.open
	return g.Buffer.Write(p)
}

func TestTheAgentsWordsNeverWaitForWhoReadsThem(t *testing.T) {
	g := newGate()
	out, err := NewSinks(g, g)
	require.Same(t, out.screen, err.screen)
	written := make(chan struct{})
	go func() { out.writeLine("[0] ", []byte("stalls"), whole); close(written) }()
	<-g.came
	var want strings.Builder
	want.WriteString("[0] stalls\n")
	for i := range 10 {
		err.Say(strconv.Itoa(i))
		want.WriteString("weft: " + strconv.Itoa(i) + "\n")
	}
	close(g.open)
	<-written
	out.writeLine("[0] ", []byte("goes on"), whole)
	err.Say("end")
	err.Drain()
	require.Equal(t, want.String()+"[0] goes on\nweft: end\n", g.String())
}

func TestWordsThatNobodyReadsAreBoundedAndTheOldestGo(t *testing.T) {
	g := newGate()
	out, err := NewSinks(g, g)
	go out.writeLine("", []byte("stalls"), whole)
	<-g.came
	long := strings.Repeat("x", maxWords/4)
	for i := range 10 {
		err.Say(strconv.Itoa(i) + long[1:])
	}
	err.Say(strings.Repeat("y", 3*maxWords))
	err.Say("last")
	require.LessOrEqual(t, out.screen.size, maxWords)
	close(g.open)
	err.Drain()
	require.Equal(t, "stalls\nweft: 11 lines of the agent's are missing here, as nobody read them\nweft: last\n", g.String())
}

func TestNothingIsWrittenToAScreenThatIsClosed(t *testing.T) {
	g := newGate()
	out, err := NewSinks(g, g)
	go out.writeLine("", []byte("stalls"), whole)
	<-g.came
	err.Say("waits")
	out.Close()
	err.Say("late")
	close(g.open)
	out.writeLine("", []byte("late"), whole)
	err.Drain()
	require.Equal(t, "stalls\n", g.String())
}

func TestTwoFilesDoNotStallEachOtherAndOneFileKeepsItsOrder(t *testing.T) {
	file := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(t.TempDir(), name), os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := file("a"), file("b")
	out, err := NewSinks(a, b)
	require.NotSame(t, out.screen, err.screen)
	again, openErr := os.OpenFile(a.Name(), os.O_WRONLY, 0)
	require.NoError(t, openErr)
	defer again.Close()
	out, err = NewSinks(a, again)
	require.Same(t, out.screen, err.screen)
}
