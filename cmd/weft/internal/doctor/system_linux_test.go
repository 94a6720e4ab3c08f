package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAKernelFileThatCannotBeReadIsAFinding(t *testing.T) {
	findings := examineSystem(func(path string) ([]byte, error) {
		if strings.HasSuffix(path, "rmem_max") {
			return []byte("212992\n"), nil
		}
		return nil, errors.New("hidden")
	})
	require.Contains(t, findings[0].text, "rmem_max is 212992")
	require.Equal(t, finding{poor, "udp buffer", "net.core.wmem_max cannot be read: hidden"}, findings[1])
	require.Equal(t, poor, findings[2].verdict)
	_, err := readNumber(func(string) ([]byte, error) { return []byte("many"), nil }, "")
	require.Error(t, err)
}
