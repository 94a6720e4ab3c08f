package transport

import (
	"math"
	"slices"
	"time"
)

// placeTerms say how many places there are, and how fast an account may take them.
type placeTerms struct {
	most      int     // places
	burst     float64 // how many an account may take at once; 0: as many as it likes
	perSecond float64 // and in the long run
	// What all accounts together may take. Where there are many, each has its part, so that newcomers cost little processor time.
	burstAll, perSecondAll float64
}

const (
	burstLeast  = 4       // of an account, however many there are
	rateLeast   = 1       // likewise
	accountsMax = 1 << 10 // that are remembered while they hold nothing
	lateMost    = 4       // times as many as there are places may have been evicted and not be gone; of them the last for new accounts
)

// places holds those who have not proved yet who they are. It is pure: now comes in.
//
// Each belongs to an account: a host, or a process. When all places are taken, the next one takes the place of the oldest in an
// account that holds the most, its own included. So a flood from one account harms that account alone.
type places struct {
	terms    placeTerms
	accounts map[string]*account
	under    []*place // the oldest first
	evicted  int      // places that were taken away and whose holders are not gone yet
	swept    time.Time
}

// account is what one host or process holds, and may still take.
type account struct {
	held int // places, evicted ones included
	left float64
	at   time.Time
}

// place is one that somebody holds.
type place struct {
	of      *places
	account *account
	evicted bool
	end     func() // ends its holder without waiting; the shell's, nil while the holder cannot be ended
}

func newPlaces(terms placeTerms) *places {
	return &places{terms: terms, accounts: map[string]*account{}}
}

// enter gives a place to an account, and says which one was taken away for it. It gives none where the account has taken too many
// lately, and where too many that were evicted are not gone yet.
func (p *places) enter(now time.Time, who string) (mine, gone *place) {
	a := p.account(now, who)
	if p.terms.burst > 0 && a.left < 1 || p.evicted >= lateMost*p.terms.most || p.evicted >= p.terms.most && a.held > 0 {
		return nil, nil
	}
	if len(p.under) >= p.terms.most {
		if gone = p.victim(a); gone == nil {
			return nil, nil
		}
		p.remove(gone)
		gone.evicted = true
		p.evicted++
	}
	if p.terms.burst > 0 {
		a.left--
	}
	a.held++
	mine = &place{of: p, account: a}
	p.under = append(p.under, mine)
	return mine, gone
}

// affords says whether an account has not taken too many lately.
func (p *places) affords(now time.Time, who string) bool {
	return p.terms.burst == 0 || p.account(now, who).left >= 1
}

// leave says that the holder of a place is gone, or has proved who it is. It is called once for each.
func (x *place) leave() {
	x.account.held--
	if x.evicted {
		x.of.evicted--
	} else {
		x.of.remove(x)
	}
}

func (p *places) remove(x *place) {
	i := slices.Index(p.under, x)
	p.under = slices.Delete(p.under, i, i+1)
}

// victim is the oldest place in an account that would hold the most.
func (p *places) victim(newcomer *account) *place {
	holds := func(a *account) int {
		if a == newcomer {
			return a.held + 1
		}
		return a.held
	}
	most := holds(newcomer)
	for _, x := range p.under {
		most = max(most, holds(x.account))
	}
	for _, x := range p.under {
		if holds(x.account) == most {
			return x
		}
	}
	return nil // the newcomer's alone holds the most, of evicted ones
}

// account finds or opens an account, and credits it with what the time has brought.
func (p *places) account(now time.Time, who string) *account {
	p.sweep(now)
	burst, rate := p.share()
	a := p.accounts[who]
	if a == nil {
		a = &account{left: burst, at: now}
		p.accounts[who] = a
	}
	if d := now.Sub(a.at); d > 0 {
		a.left += rate * d.Seconds()
		a.at = now
	}
	a.left = min(a.left, burst)
	return a
}

// share is what an account may take, as many as there are.
func (p *places) share() (burst, rate float64) {
	burst, rate = p.terms.burst, p.terms.perSecond
	if n := float64(len(p.accounts)); p.terms.burstAll > 0 && n > 0 {
		burst = min(burst, max(burstLeast, math.Floor(p.terms.burstAll/n)))
		rate = min(rate, max(rateLeast, p.terms.perSecondAll/n))
	}
	return burst, rate
}

// sweep forgets, once a second, accounts that hold nothing and may take as much as ever; and where there are too many, all that hold
// nothing.
func (p *places) sweep(now time.Time) {
	full := len(p.accounts) >= accountsMax+(1+lateMost)*p.terms.most
	if !full && now.Sub(p.swept) < time.Second {
		return
	}
	p.swept = now
	burst, rate := p.share()
	for who, a := range p.accounts {
		if a.held == 0 && (full || a.left+rate*now.Sub(a.at).Seconds() >= burst) {
			delete(p.accounts, who)
		}
	}
}
