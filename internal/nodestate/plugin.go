package nodestate

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// pluginVersion asks a plugin of ours for its version, as the daemon tells its own.
func pluginVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{} // a plugin that is no Multus must not take it for a CNI call
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	_, version, found := strings.Cut(strings.TrimSpace(string(out)), ": ")
	if !found || strings.Contains(version, "\n") {
		return "", fmt.Errorf("%s --version does not answer as a plugin of Multus does", path)
	}
	return version, nil
}
