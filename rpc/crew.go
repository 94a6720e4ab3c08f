package rpc

// crew runs work on goroutines that are kept for a while: their stacks have grown already.
type crew struct {
	idle chan func() // who waits for work receives
	room chan struct{}
}

// maxIdle is how many goroutines without work a worker keeps.
const maxIdle = 32

func newCrew() crew {
	return crew{idle: make(chan func()), room: make(chan struct{}, maxIdle)}
}

// do runs work on a goroutine that the worker waits for when it closes.
func (c *crew) do(w *Worker, work func()) {
	select {
	case c.idle <- work:
	default:
		w.work.Go(func() { c.serve(w, work) })
	}
}

// serve works until there is enough of those who wait for work, or the worker ends.
func (c *crew) serve(w *Worker, work func()) {
	for {
		work()
		select {
		case c.room <- struct{}{}:
		default:
			return
		}
		select {
		case work = <-c.idle:
			<-c.room
		case <-w.life.Done():
			<-c.room
			return
		}
	}
}
