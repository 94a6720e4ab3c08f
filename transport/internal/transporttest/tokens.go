package transporttest

import "github.com/weft-project/weft/internal/secret/secrettest"

// Job is the id of the tests' job.
const Job = "job-7"

// Token is the token of the tests' job.
func Token() string { return secrettest.Token("job") }

// OtherToken is the token of another job.
func OtherToken() string { return secrettest.Token("another job") }
