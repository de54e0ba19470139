package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Load puts image archives on every node that runs. An image under a name that is
// there already serves the containers that are made from then on.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		text, err := os.ReadFile(archive)
		if err == nil {
			err = c.load(ctx, string(text))
		}
		if err != nil {
			return fmt.Errorf("loading %s: %w", archive, err)
		}
	}
	return nil
}

// loadBase loads the images that every node has.
func (c *Cluster) loadBase(ctx context.Context) error {
	base, err := c.settings.Tools.baseImages(ctx)
	if err != nil {
		return err
	}
	for _, image := range base {
		var archive strings.Builder
		if err := image.Write(&archive); err != nil {
			return err
		}
		if err := c.load(ctx, archive.String()); err != nil {
			return fmt.Errorf("loading %s: %w", image.Ref, err)
		}
	}
	return nil
}

func (c *Cluster) load(ctx context.Context, archive string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.Nodes() {
		if node.Running() {
			group.Go(func() error {
				err := poll(ctx, time.Minute, func(ctx context.Context) error {
					_, err := node.Exec(ctx, "ctr", "version")
					return err
				})
				if err == nil {
					_, err = node.run(ctx, strings.NewReader(archive), "ctr", "-n", "k8s.io", "images", "import", "-")
				}
				return err
			})
		}
	}
	return group.Wait()
}
