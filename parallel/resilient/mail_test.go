package resilient

import (
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
)

// hear has a letter come, which need not have travelled.
func (m *mail) hear(t *testing.T, from string, l letter) {
	t.Helper()
	raw, err := cbor.Marshal(l)
	require.NoError(t, err)
	m.receive(rpc.WorkerInfo{Name: from}, raw, nil)
}

func TestOnlyMembersAreAnsweredAndNotAnyNumberOfQuestionsAtOnce(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	keeps := newKeeping()
	m, err := listen(ws[0], "team", []string{ws[0].Name(), ws[1].Name()}, keeps)
	require.NoError(t, err)
	answers := func() map[string]int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.giving
	}
	keeps.mu.Lock() // so that no answer is found
	for range 100 {
		m.hear(t, ws[1].Name(), letter{Kind: letterAsks})
		m.hear(t, ws[2].Name(), letter{Kind: letterAsks})
	}
	require.Equal(t, map[string]int{ws[1].Name(): mostGiven}, answers())
	m.among([]string{ws[0].Name(), ws[2].Name()})
	m.hear(t, ws[2].Name(), letter{Kind: letterAsks})
	require.Equal(t, map[string]int{ws[1].Name(): mostGiven, ws[2].Name(): 1}, answers())
	keeps.mu.Unlock()
	m.quit()
	require.Empty(t, answers())
}

func TestAnAnswerCountsOfWhoWasAskedAlone(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 1)
	m, err := listen(ws[0], "team", nil, newKeeping())
	require.NoError(t, err)
	defer m.quit()
	waits := make(chan answer, 1)
	m.asked[7] = pending{"asked", waits}
	m.hear(t, "another", letter{Kind: letterGives, ID: 7, Error: "mine"})
	m.hear(t, "asked", letter{Kind: letterGives, ID: 7, Error: "yours"})
	require.EqualError(t, (<-waits).err, "yours")
}

func TestANewcomerHasMemoryForNothingThatItDoesNotHaveItself(t *testing.T) {
	from, to := taught(t, 1, 30, 600, 2), taught(t, 2, 30, 600, 2)
	for name, change := range map[string]func(e *entry){
		"":       func(*entry) {},
		"bytes":  func(e *entry) { e.Bytes += 4 },
		"pieces": func(e *entry) { e.Sums = append(e.Sums, 1) },
		"shape":  func(e *entry) { e.Shape = []int{30, 601} },
		"dtype":  func(e *entry) { e.DType = "float64" },
		"name":   func(e *entry) { e.Name = "p:none" },
		"twice":  func(e *entry) { e.Name = strings.Replace(e.Name, ".exp_avg_sq", ".exp_avg", 1) },
	} {
		for i := range 12 {
			k, err := from.state()
			require.NoError(t, err)
			list, err := k.manifest()
			require.NoError(t, err)
			require.Len(t, list.Entries, 12)
			before := list.Entries[i].Name
			change(&list.Entries[i])
			switch _, err = to.fits(list); {
			case name == "", name == "twice" && before == list.Entries[i].Name:
				require.NoError(t, err)
			default:
				require.ErrorIs(t, err, ErrDifferent, "%s of %d", name, i)
				require.ErrorContains(t, err, list.Entries[i].Name)
			}
		}
	}
}
