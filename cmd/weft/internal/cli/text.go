package cli

import "github.com/weft-project/weft/internal/printable"

// Plain is text of others without what could steer a terminal.
func Plain(s string) string { return printable.Text(s, maxPlain) }

// maxPlain bounds one text of others, in bytes.
const maxPlain = 2 << 10
