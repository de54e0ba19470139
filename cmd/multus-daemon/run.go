package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/pflag"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/daemon"
	"github.com/multus-thick/multus/internal/devices"
	"github.com/multus-thick/multus/internal/entrypoint"
	"github.com/multus-thick/multus/internal/kube"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/logging"
	"github.com/multus-thick/multus/internal/version"
)

// Exit codes (contract 1.11). A failed probe is exitConfig too.
const (
	exitConfig  = 1
	exitServing = 3
	exitVersion = 4
)

// gcPercent trades processor time, of which the daemon needs little, for memory:
// its limit is what operators feel.
const gcPercent = 20

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("multus-daemon", flag.ContinueOnError)
	flags.SetOutput(stderr)
	configFile := flags.String("config", "/etc/cni/net.d/multus.d/daemon-config.json", "the configuration file")
	printVersion := flags.Bool("version", false, "print the version and exit with code 4")
	thin := entrypoint.NewFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	thin.AddTo(flags)
	if err := flags.Parse(args); err != nil {
		return exitConfig
	}
	if *printVersion {
		fmt.Fprintln(stdout, version.String("multus-daemon"))
		return exitVersion
	}
	var code int
	var err error
	if flags.NArg() > 0 {
		code, err = probe(ctx, flags.Args(), *configFile, thin)
	} else {
		debug.SetGCPercent(gcPercent)
		code, err = serve(ctx, *configFile, thin, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "multus-daemon:", err)
	}
	return code
}

func serve(ctx context.Context, configFile string, thin *entrypoint.Flags, stderr io.Writer) (int, error) {
	text, cfg, warnings, err := read(configFile, thin)
	if err != nil {
		for _, w := range warnings { // there is no log yet, and a misspelt key may be the cause
			fmt.Fprintf(stderr, "multus-daemon: %s: warning: %s\n", configFile, w)
		}
		return exitConfig, err
	}
	log, closer := logging.New(cfg, stderr, true)
	defer closer.Close()
	for _, w := range warnings {
		log.Warn(string(w), "file", configFile)
	}
	cluster, client, err := connect(cfg, log)
	if err != nil {
		return exitConfig, err
	}
	options := daemon.Options{
		Config: cfg, ConfigFile: text, Cluster: cluster, Log: log, Environ: os.Environ(), BootID: ledger.BootID(),
		Devices:  devices.New(devices.DefaultSocket, devices.DefaultCheckpoint),
		Generate: cfg.MultusConfigFile != "",
	}
	if client != nil {
		options.Reviewer, options.Claims = client, kube.Claims{Client: client}
	}
	d, err := daemon.New(options) //nolint:contextcheck // the publisher gets its own in Run
	if err != nil {
		return exitConfig, fmt.Errorf("%s: %w", configFile, err)
	}
	if err := d.Run(ctx); err != nil {
		return exitServing, err
	}
	return 0, nil
}

// read reads the configuration file, with the flags of the thin entrypoint under it.
// Warnings are given beside an error too.
func read(configFile string, thin *entrypoint.Flags) ([]byte, *config.Config, []config.Warning, error) {
	text, err := os.ReadFile(configFile)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("flag -config: %w", err)
	}
	text, notes, err := thin.Under(text)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: the configuration %w", configFile, err)
	}
	cfg, warnings, err := config.Parse(text)
	warnings = append(notes, warnings...)
	if err != nil {
		return nil, nil, warnings, fmt.Errorf("%s: %w", configFile, err)
	}
	return text, cfg, warnings, nil
}
