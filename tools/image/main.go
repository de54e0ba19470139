package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

// run is the whole command, in the checkout's root folder.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	b := &builder{root: "."}
	flags.StringVar(&b.out, "out", "bin/image", "folder of the results")
	flags.StringVar(&b.goCommand, "go", "go", "the go command")
	flags.StringVar(&b.ldflags, "ldflags", "", "ldflags of the programs")
	flags.StringVar(&b.repo, "name", "localhost/multus-cni", "name of the images, without a tag")
	flags.StringVar(&b.version, "version", "", "version, and tag of the thin image")
	flags.StringVar(&b.commit, "commit", "", "commit")
	flags.StringVar(&b.date, "date", "", "date of the commit, RFC 3339")
	flags.StringVar(&b.mirror, "mirror", "", "Debian mirror to try before the recorded ones")
	flags.StringVar(&b.base.name, "base", scratch, "image below ours: OCI layout, OCI archive or reference")
	platforms := flags.String("platforms", "", "\"all\", or a list as linux/arm64,linux/arm/v7; empty for this machine's")
	rootfs := flags.String("rootfs", "", "write the images' files below this folder, and no images")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := b.complete(*platforms); err != nil {
		return err
	}
	// Nothing of an earlier build may pass for a program of this one.
	if err := os.RemoveAll(b.work()); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.work()) }()
	if *rootfs != "" {
		return b.rootfs(ctx, *rootfs)
	}
	return b.run(ctx, stdout)
}

// complete checks what was given.
func (b *builder) complete(platforms string) (err error) {
	if b.created, err = time.Parse(time.RFC3339, b.date); err != nil {
		return fmt.Errorf("the date of the commit (DATE=) should be as 2026-12-02T00:00:00Z: %w", err)
	}
	if b.version == "" {
		return errors.New("no version is given (VERSION=): it should be as v5.0.0")
	}
	if _, err = name.NewTag(b.repo + ":" + b.version + "-thick-debug"); err != nil {
		return fmt.Errorf("the images' name and version (IMAGE=, VERSION=): %w", err)
	}
	if b.platforms, err = choose(platforms); err != nil {
		return err
	}
	b.lock, err = parseLock(filepath.Join(b.root, "image/debian.lock"))
	return err
}
