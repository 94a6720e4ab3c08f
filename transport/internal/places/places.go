package places

import (
	"math"
	"slices"
	"time"
)

// Terms say how many places there are, and how fast an account may take them.
type Terms struct {
	Most      int     // places
	Burst     float64 // how many an account may take at once; 0: as many as it likes
	PerSecond float64 // and in the long run
	// What all accounts together may take. Where there are many, each has its part, so that
	// newcomers cost little processor time.
	BurstAll, PerSecondAll float64
}

// Bounds of all accounts.
const (
	burstLeast  = 4       // of an account, however many there are
	rateLeast   = 1       // likewise
	AccountsMax = 1 << 10 // that are remembered while they hold nothing
	lateMost    = 4       // times as many as there are places may have been evicted and not be gone; of them the last for new accounts
)

// Places holds those who have not proved yet who they are. It is pure: now comes in.
//
// Each belongs to an account: a host, or a process. When all places are taken, the next one takes
// the place of the oldest in an account that holds the most, its own included. So a flood from one
// account harms that account alone.
type Places struct {
	terms    Terms
	Accounts map[string]*account
	Under    []*Place // the oldest first
	Evicted  int      // places that were taken away and whose holders are not gone yet
	swept    time.Time
}

// account is what one host or process holds, and may still take.
type account struct {
	Held int // places, evicted ones included
	left float64
	at   time.Time
}

// Place is one that somebody holds.
type Place struct {
	Of      *Places
	Account *account
	Evicted bool
	End     func() // ends its holder without waiting; the shell's, nil while the holder cannot be ended
}

// New makes places that nobody holds.
func New(terms Terms) *Places {
	return &Places{terms: terms, Accounts: map[string]*account{}}
}

// Enter gives a place to an account, and says which one was taken away for it. It gives none where
// the account has taken too many lately, and where too many that were evicted are not gone yet.
func (p *Places) Enter(now time.Time, who string) (mine, gone *Place) {
	a := p.Account(now, who)
	if p.terms.Burst > 0 && a.left < 1 || p.Evicted >= lateMost*p.terms.Most || p.Evicted >= p.terms.Most && a.Held > 0 {
		return nil, nil
	}
	if len(p.Under) >= p.terms.Most {
		if gone = p.victim(a); gone == nil {
			return nil, nil
		}
		p.remove(gone)
		gone.Evicted = true
		p.Evicted++
	}
	if p.terms.Burst > 0 {
		a.left--
	}
	a.Held++
	mine = &Place{Of: p, Account: a}
	p.Under = append(p.Under, mine)
	return mine, gone
}

// Affords says whether an account has not taken too many lately.
func (p *Places) Affords(now time.Time, who string) bool {
	return p.terms.Burst == 0 || p.Account(now, who).left >= 1
}

// Leave says that the holder of a place is gone, or has proved who it is. It is called once for
// each.
func (x *Place) Leave() {
	x.Account.Held--
	if x.Evicted {
		x.Of.Evicted--
	} else {
		x.Of.remove(x)
	}
}

func (p *Places) remove(x *Place) {
	i := slices.Index(p.Under, x)
	p.Under = slices.Delete(p.Under, i, i+1)
}

// victim is the oldest place in an account that would hold the most.
func (p *Places) victim(newcomer *account) *Place {
	holds := func(a *account) int {
		if a == newcomer {
			return a.Held + 1
		}
		return a.Held
	}
	most := holds(newcomer)
	for _, x := range p.Under {
		most = max(most, holds(x.Account))
	}
	for _, x := range p.Under {
		if holds(x.Account) == most {
			return x
		}
	}
	return nil // the newcomer's alone holds the most, of evicted ones
}

// Account finds or opens an account, and credits it with what the time has brought.
func (p *Places) Account(now time.Time, who string) *account {
	p.sweep(now)
	burst, rate := p.share()
	a := p.Accounts[who]
	if a == nil {
		a = &account{left: burst, at: now}
		p.Accounts[who] = a
	}
	if d := now.Sub(a.at); d > 0 {
		a.left += rate * d.Seconds()
		a.at = now
	}
	a.left = min(a.left, burst)
	return a
}

// share is what an account may take, as many as there are.
func (p *Places) share() (burst, rate float64) {
	burst, rate = p.terms.Burst, p.terms.PerSecond
	if n := float64(len(p.Accounts)); p.terms.BurstAll > 0 && n > 0 {
		burst = min(burst, max(burstLeast, math.Floor(p.terms.BurstAll/n)))
		rate = min(rate, max(rateLeast, p.terms.PerSecondAll/n))
	}
	return burst, rate
}

// sweep forgets, once a second, accounts that hold nothing and may take as much as ever; and where
// there are too many, all that hold nothing.
func (p *Places) sweep(now time.Time) {
	full := len(p.Accounts) >= AccountsMax+(1+lateMost)*p.terms.Most
	if !full && now.Sub(p.swept) < time.Second {
		return
	}
	p.swept = now
	burst, rate := p.share()
	for who, a := range p.Accounts {
		if a.Held == 0 && (full || a.left+rate*now.Sub(a.at).Seconds() >= burst) {
			delete(p.Accounts, who)
		}
	}
}
