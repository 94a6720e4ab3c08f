//go:build !race

package rdzv

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/printable"
)

// steers holds what moves a cursor, renames a window, forges a line, and turns the direction of
// writing.
const steers = "\x1b]0;mine\a\x1b[2J\r\nweft: all is well\u009b31m\u202e"

func TestNoWordOfAnotherNodeSteersATerminal(t *testing.T) {
	said := map[string]string{}
	b, err := readBulletin(pack(bulletin{V: version, Term: 1, Summary: Summary{Outcome: steers}, Changes: []Change{{Nth: 1, What: steers}}}))
	require.NoError(t, err)
	said["outcome"], said["change"] = b.Summary.Outcome, b.Changes[0].What
	a, err := readAnswer(pack(answer{V: version, Term: 1, Kind: Refuse, Why: steers, Err: 1, Text: steers}))
	require.NoError(t, err)
	said["why of an answer"], said["error of an answer"] = a.Why, a.action("n").Err.Error()
	e, err := readMessage(pack(message{V: version, Event: Event{Kind: Close, ID: "n", Why: steers}}))
	require.NoError(t, err)
	said["why of a message"] = e.Why

	s, err := NewState(Config{Min: 1})
	require.NoError(t, err)
	s.phase, s.outcome = Closed, steers
	s.ended = []ended{{id: "n", rank: -1, why: steers, at: epochOfTime}}
	raw, err := s.encode(epochOfTime)
	require.NoError(t, err)
	s, err = decode(raw, epochOfTime.Add(time.Second))
	require.NoError(t, err)
	v := View{}.of(s, epochOfTime.Add(time.Second))
	said["outcome of a state"], said["end of a node"] = s.outcome, v.Ended[0].Why

	for name, raw := range map[string][]byte{
		"lease": pack(lease{V: version, Term: 1, Leader: steers}), "bulletin": pack(bulletin{V: version, Summary: Summary{Outcome: steers}}),
		"message": pack(message{V: version, Event: Event{Kind: Close, ID: steers}}),
		"answer":  pack(answer{V: version, Term: 1, Kind: Place, Placement: Placement{Nodes: 1, Slots: 1, World: 1, MasterAddr: steers}}),
	} {
		_, errLease := readLease(raw)
		_, errBulletin := readBulletin(raw)
		_, errMessage := readMessage(raw)
		_, errAnswer := readAnswer(raw)
		for i, err := range []error{errLease, errBulletin, errMessage, errAnswer} {
			require.ErrorIs(t, err, ErrCorrupt)
			said[fmt.Sprint("what is wrong with a ", name, i)] = err.Error()
		}
	}
	for name, n := range map[string]Node{"id": {ID: steers, Slots: 1}, "address": {ID: "n", Addr: "\u009b31m", Slots: 1}, "role": {ID: "n", Role: "\u202e", Slots: 1}} {
		err := n.validate()
		require.ErrorIs(t, err, ErrRefused, name)
		said["the refusal of "+name] = err.Error()
	}
	for where, text := range said {
		require.Equal(t, printable.Text(text, len(text)), text, where)
	}
}
