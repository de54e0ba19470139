package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/daemon"
	"github.com/multus-thick/multus/internal/devices"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/logging"
	"github.com/multus-thick/multus/internal/version"
)

// Exit codes (contract 1.11).
const (
	exitConfig  = 1
	exitServing = 3
	exitVersion = 4
)

// gcPercent trades processor time, of which the daemon needs little, for memory:
// its limit is what operators feel.
const gcPercent = 50

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("multus-daemon", flag.ContinueOnError)
	flags.SetOutput(stderr)
	configFile := flags.String("config", "/etc/cni/net.d/multus.d/daemon-config.json", "the configuration file")
	printVersion := flags.Bool("version", false, "print the version and exit with code 4")
	if err := flags.Parse(args); err != nil {
		return exitConfig
	}
	if *printVersion {
		fmt.Fprintln(stdout, version.String("multus-daemon"))
		return exitVersion
	}
	debug.SetGCPercent(gcPercent)
	code, err := serve(ctx, *configFile, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "multus-daemon:", err)
	}
	return code
}

func serve(ctx context.Context, configFile string, stderr io.Writer) (int, error) {
	text, err := os.ReadFile(configFile)
	if err != nil {
		return exitConfig, fmt.Errorf("flag -config: %w", err)
	}
	cfg, warnings, err := config.Parse(text)
	if err != nil {
		return exitConfig, fmt.Errorf("%s: %w", configFile, err)
	}
	log, closer := logging.New(cfg, stderr, cfg.LogFile == "")
	defer closer.Close()
	for _, w := range warnings {
		log.Warn(string(w), "file", configFile)
	}
	cluster, err := connect(cfg, log)
	if err != nil {
		return exitConfig, err
	}
	d, err := daemon.New(daemon.Options{
		Config: cfg, ConfigFile: text, Cluster: cluster, Log: log, Environ: os.Environ(), BootID: ledger.BootID(),
		Devices:  devices.New(devices.DefaultSocket, devices.DefaultCheckpoint),
		Generate: cfg.MultusConfigFile != "",
	})
	if err != nil {
		return exitConfig, fmt.Errorf("%s: %w", configFile, err)
	}
	if err := d.Run(ctx); err != nil {
		return exitServing, err
	}
	return 0, nil
}
