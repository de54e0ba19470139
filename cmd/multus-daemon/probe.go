package main

import (
	"context"
	"fmt"
	"time"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/entrypoint"
)

// probeTimeout is how long a probe waits for the daemon's answer.
const probeTimeout = 5 * time.Second

// probe asks the daemon that serves how it is, for exec probes in an image without a
// shell: args are the command and, optionally, the folder of the daemon's socket. Given
// the folder, a probe does not depend on a configuration that is being edited.
func probe(ctx context.Context, args []string, configFile string, thin *entrypoint.Flags) (int, error) {
	path := map[string]string{"healthcheck": api.PathHealthz, "readycheck": api.PathReadyz}[args[0]]
	if path == "" || len(args) > 2 {
		return exitConfig, fmt.Errorf("the arguments are %q: want none to serve, or healthcheck or readycheck and, optionally, the folder of the socket", args)
	}
	var dir string
	if len(args) == 2 {
		dir = args[1]
	} else {
		_, cfg, _, err := read(configFile, thin)
		if err != nil {
			return exitConfig, err
		}
		dir = cfg.SocketDir
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	client := api.NewClient(dir)
	defer client.Close()
	if _, err := client.Get(ctx, path); err != nil {
		return exitConfig, fmt.Errorf("%s: %w", args[0], err)
	}
	return 0, nil
}
