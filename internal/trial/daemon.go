package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/multus-thick/multus/api"
)

const (
	readyTime = 15 * time.Second      // for a daemon to be ready
	lookEvery = 20 * time.Millisecond // at what another process will do
	stopTime  = 15 * time.Second      // for a daemon to end
)

// process is the node's daemon.
type process struct {
	cmd  *exec.Cmd
	log  *os.File
	gone chan error
}

// startDaemon starts the daemon and waits until it is ready.
func (n *Node) startDaemon(ctx context.Context) (*process, error) {
	log, err := os.Create(n.daemonLog())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(n.Bin, "multus-daemon"), "-config", n.daemonConfig())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who stop it in good order
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p := &process{cmd: cmd, log: log, gone: make(chan error, 1)}
	go func() { p.gone <- cmd.Wait() }()
	if err := p.ready(ctx, api.NewClient(n.socketDir())); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("the daemon: %w; it says:\n%s", err, said), p.stop())
	}
	return p, nil
}

func (p *process) ready(ctx context.Context, client *api.Client) error {
	defer client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, readyTime, fmt.Errorf("not ready within %s", readyTime))
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		_, err := client.Get(ctx, api.PathReadyz)
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case end := <-p.gone:
			p.gone <- end // for stop
			return errors.New("it ended before it was ready")
		}
	}
}

// stop ends the daemon as a kubelet does.
func (p *process) stop() error {
	defer p.log.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that ended already is what we want
	select {
	case err := <-p.gone:
		return err
	case <-time.After(stopTime):
		return errors.Join(fmt.Errorf("the daemon did not end within %s of SIGTERM and was killed", stopTime), p.cmd.Process.Kill(), <-p.gone)
	}
}
