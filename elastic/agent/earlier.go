package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
)

// ErrEarlier is that a job with this id has ended before this node came to it.
var ErrEarlier = errors.New("this id is of an earlier run")

// endedKey holds when the job ended, by the clock of a node that knew of it: for people alone.
const endedKey = "ended"

// conclude notes in a store that outlives the job when it has ended.
func (m *meeting) conclude(c context.Context) {
	if m.spec.Meet != nil {
		_ = m.st.Set(c, endedKey, []byte(time.Now().UTC().Format(time.RFC3339)))
	}
}

// earlier says so where what ends this node's part is that it has found the end of a run that was
// over before it came.
func (m *meeting) earlier(c context.Context, err error) error {
	if m.waits.hasMet() || !errors.Is(err, rdzv.ErrClosed) && !errors.Is(err, rdzv.ErrRefused) {
		return err
	}
	c, cancel := context.WithTimeout(c, attempt)
	defer cancel()
	v, bad := rdzv.Look(c, m.st)
	if bad != nil || v.Phase != rdzv.Closed {
		return err
	}
	ago := ""
	if there, bad := m.st.Check(c, endedKey); there && bad == nil {
		b, _ := m.st.Get(c, endedKey)
		if at, bad := time.Parse(time.RFC3339, string(b)); bad == nil {
			ago = fmt.Sprintf(" %v ago", max(time.Since(at), 0).Round(time.Second))
		}
	}
	until := ""
	if stays := m.spec.Stays; stays > 0 {
		until = fmt.Sprintf("; what it has left there is gone %.0f minutes after its end at most: until then take another id (--rdzv-id)", stays.Minutes())
	}
	return fmt.Errorf("%w: job %s at %s ended%s, before this node came (%w: %s)%s",
		ErrEarlier, m.spec.RunID, m.spec.Endpoint, ago, rdzv.ErrClosed, v.Outcome, until)
}
