package kubefile

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/multus-thick/multus/internal/atomicfile"
)

const (
	mode = fs.FileMode(0o600)
	tick = time.Second
)

// File is one kubeconfig, whose content follows something else.
type File struct {
	Path    string
	Content func() ([]byte, error)
	Log     *slog.Logger
}

// Write brings the file up to date. One that is right already is left alone.
func (f File) Write() error {
	content, err := f.Content()
	if err != nil {
		return err
	}
	written, err := atomicfile.Keep(f.Path, content, mode)
	if written && err == nil {
		f.Log.Info("the file is in place", "file", f.Path)
	}
	return err
}

// Keep brings the file up to date whenever its content is another, or another program has
// damaged it, until ctx ends.
func (f File) Keep(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := f.Write()
		switch {
		case err == nil:
			failing = ""
		case err.Error() != failing: // tell it once
			failing = err.Error()
			f.Log.Error("the kubeconfig is not up to date", "error", err)
		}
	}
}
