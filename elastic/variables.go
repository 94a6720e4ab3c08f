package elastic

import "github.com/weft-project/weft/internal/secret"

// The environment variables that an agent sets for its workers, beside those of torchrun.
const (
	// AgentVariable holds the number of the file by which the agent tells a worker its places, and
	// after a colon what tells that file from others: its inode.
	AgentVariable = "WEFT_AGENT_FD"
	// ErrorFileVariable names the file in which a worker says why it fails.
	ErrorFileVariable = "TORCHELASTIC_ERROR_FILE"
	// RestartsVariable tells a worker how many failed workers the job had started again when it was
	// started.
	RestartsVariable = "WEFT_RESTARTS"
	// TokenVariable holds the job's shared secret, and TokenFileVariable names a file with it. Only
	// one of the two may be set.
	TokenVariable     = secret.Variable
	TokenFileVariable = secret.FileVariable
)
