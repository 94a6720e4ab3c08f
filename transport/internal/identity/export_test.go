package identity

// What tests of links need of an identity's inside.
var (
	TokenOf = fromToken
	OnDisk  = onDisk
)

const (
	LookEvery = lookEvery
	LeafLife  = leafLife
	StoreALPN = storeALPN
)

// Look has an identity look at its files, however slow this machine is.
func Look(id *Identity) {
	id.refresh()
	id.mu.Lock()
	looking := id.files.looking
	id.mu.Unlock()
	if looking != nil {
		<-looking
	}
}

// Trust has an identity take for its job's who is of another's.
func Trust(id, other *Identity) { id.roots = other.roots }

// OfJob is an identity that has nothing but a job.
func OfJob(job string) *Identity { return &Identity{job: job} }
