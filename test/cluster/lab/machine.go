package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is the control plane or a node: a tree of processes that takes itself for a
// machine. Commands of different machines may run at the same time; those that start
// and stop the same one may not.
type Machine struct {
	Name    string
	cluster *Cluster
	number  int // of the node; 0 is the control plane
}

// BootOptions say how a machine comes back.
type BootOptions struct {
	// VolatileEtc is a node whose /etc does not survive: what was written there since
	// the first start is gone. /etc/kubernetes/manifests stays.
	VolatileEtc bool
}

var (
	errNotRunning = errors.New("not running")
	errRunning    = errors.New("running already")
)

// folder of the machine's disks, logs and spec.
func (m Machine) folder(names ...string) string {
	return filepath.Join(append([]string{m.cluster.config.State, m.Name}, names...)...)
}

// Logs is the folder with one log for each program, that of the first process, and on
// a node the logs of the pods: /var/log of the machine.
func (m Machine) Logs() string { return m.folder("log") }

// Running says whether the machine is on.
func (m Machine) Running() bool {
	_, err := m.pid()
	return err == nil
}

// pid of its first process.
func (m Machine) pid() (int, error) {
	all, err := firstProcesses("/proc", m.cluster.config.State)
	if err != nil {
		return 0, err
	}
	pid, ok := all[m.Name]
	if !ok {
		return 0, fmt.Errorf("%s: %w", m.Name, errNotRunning)
	}
	return pid, nil
}

// firstProcesses finds those of the machines of a state folder, by machine. They tell
// by their command line, so nothing that was written down can be out of date.
func firstProcesses(proc, state string) (map[string]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("looking for the machines: %w", err)
	}
	found := map[string]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline")) // it may have ended
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if len(args) != 3 || args[0] != joinName && args[0] != initName || args[1] != state {
			continue
		}
		// Its children have its command line for a moment, before they are something else.
		status, _ := os.ReadFile(filepath.Join(proc, e.Name(), "status"))
		if isFirst(string(status)) {
			found[args[2]] = pid
		}
	}
	return found, nil
}

// isFirst says by /proc/PID/status whether a process is the first of its pid namespace.
func isFirst(status string) bool {
	for line := range strings.Lines(status) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(pids)
			return len(fields) > 1 && fields[len(fields)-1] == "1"
		}
	}
	return false
}

// Start is the power button. It returns when the programs have been started; see
// [Cluster.WaitReady].
func (m Machine) Start(ctx context.Context, o BootOptions) error {
	if m.Running() {
		return fmt.Errorf("%s: %w", m.Name, errRunning)
	}
	s, err := m.prepare(o)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	var inherited []*os.File
	if s.Forward != "" {
		listener, err := m.cluster.listen()
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		defer listener.Close()
		inherited = append(inherited, listener)
	}
	pid, err := m.spawn(ctx, s, inherited)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if err := m.plug(pid); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	programs, err := m.Programs(ctx)
	if err != nil {
		return err
	}
	return m.startPrograms(ctx, programs)
}

func (m Machine) startPrograms(ctx context.Context, programs []Program) error {
	for _, p := range programs {
		if err := m.StartProgram(ctx, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes what the first process needs: folders, files, cgroups, its spec.
func (m Machine) prepare(o BootOptions) (spec, error) {
	s, err := m.spec()
	if err != nil {
		return spec{}, err
	}
	for _, d := range s.Disks {
		if err := os.MkdirAll(d.Folder, 0o755); err != nil {
			return spec{}, err
		}
	}
	if m.number > 0 {
		if err := m.provision(o); err != nil {
			return spec{}, err
		}
	}
	if err := m.cluster.record(s.Cgroups); err != nil {
		return spec{}, err
	}
	for _, g := range s.Cgroups {
		if err := g.create(); err != nil {
			return spec{}, err
		}
	}
	return s, s.write(m.folder())
}

// spawn starts the first process, and returns when it can be told what to do.
func (m Machine) spawn(ctx context.Context, s spec, inherited []*os.File) (int, error) {
	logName := filepath.Join(m.Logs(), "init.log")
	log, err := os.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{joinName, m.cluster.config.State, m.Name}, Dir: "/", Env: s.environment(),
		Stdout: log, Stderr: log, ExtraFiles: inherited,
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:     true,
			Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		},
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the first process: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it outlives us, or is collected
	pid := cmd.Process.Pid
	err = poll(ctx, 30*time.Second, func(ctx context.Context) error {
		select {
		case err := <-ended:
			said, _ := os.ReadFile(logName) // it is only to explain
			return finalError{fmt.Errorf("the first process has ended: %w: %s", err, tail(said))}
		default:
			_, err := request(ctx, socketOf(pid), http.MethodGet, "/programs")
			return err
		}
	})
	return pid, err
}

// plug connects the machine to the others.
func (m Machine) plug(pid int) error {
	if m.number > 0 {
		control, err := m.cluster.ControlPlane().pid()
		if err != nil {
			return err
		}
		return plugNode(control, pid, m.number)
	}
	if err := plugControlPlane(pid); err != nil {
		return err
	}
	for _, node := range m.cluster.Nodes() { // their cables went with the old bridges
		if nodePID, err := node.pid(); err == nil {
			if err := plugNode(pid, nodePID, node.number); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stop is a loss of power: every process ends at once, with no chance to tidy up.
// /run, /tmp and what is mounted are gone; /var/lib/{containerd,kubelet,cni}, /var/log,
// /opt/cni/bin and /etc stay. Stopping one that is off does nothing.
func (m Machine) Stop(ctx context.Context) error {
	pid, err := m.pid()
	if err == nil {
		err = killTree(ctx, pid)
	} else if errors.Is(err, errNotRunning) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("stopping %s: %w", m.Name, err)
	}
	return m.cluster.removeCgroups(ctx, m.Name)
}

// Reboot is Stop and Start.
func (m Machine) Reboot(ctx context.Context, o BootOptions) error {
	if err := m.Stop(ctx); err != nil {
		return err
	}
	return m.Start(ctx, o)
}

// killTree ends the first process of a pid namespace, and thereby all of it. The
// descriptor tells when the last of them has ended, which the pid does not.
func killTree(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return poll(ctx, 30*time.Second, func(context.Context) error {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n == 0 {
			return errors.Join(fmt.Errorf("process %d is still there", pid), err)
		}
		return nil
	})
}

// Command is a command in the machine's namespaces, as root, and with the machine's
// PATH. It ends when ctx does. Only its cgroups are the caller's.
func (m Machine) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	pid, err := m.pid()
	if err != nil {
		return nil, err
	}
	s, err := readSpec(m.folder())
	if err != nil {
		return nil, err
	}
	// What ends nsenter does not end the command, which is in another pid namespace.
	enter := []string{"-t", strconv.Itoa(pid), "-a", "--", "setpriv", "--pdeathsig", "KILL", "--", name}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = s.environment()
	return cmd, nil
}

// Root is the machine's file system as seen from here. Sockets in it can be dialled.
func (m Machine) Root() (string, error) {
	pid, err := m.pid()
	return fmt.Sprintf("/proc/%d/root", pid), err
}

// Exec runs a command and returns its standard output.
func (m Machine) Exec(ctx context.Context, name string, args ...string) (string, error) {
	return m.run(ctx, nil, name, args...)
}

func (m Machine) run(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	cmd, err := m.Command(ctx, name, args...)
	if err != nil {
		return "", err
	}
	var said strings.Builder
	cmd.Stdin, cmd.Stderr = stdin, &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %s: %w: %s", m.Name, name, err, tail([]byte(said.String())))
	}
	return string(out), nil
}

// Programs of the machine, and their state.
func (m Machine) Programs(ctx context.Context) ([]Program, error) {
	pid, err := m.pid()
	if err != nil {
		return nil, err
	}
	answer, err := request(ctx, socketOf(pid), http.MethodGet, "/programs")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	var list []Program
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("%s: its programs: %w", m.Name, err)
	}
	return list, nil
}

// StartProgram starts one that was stopped. It does not wait until it runs.
func (m Machine) StartProgram(ctx context.Context, name string) error {
	return m.tell(ctx, name, "start")
}

// StopProgram ends one, with SIGTERM and after three seconds SIGKILL, and keeps it
// stopped. What it has started goes on, as with systemd's KillMode=process.
func (m Machine) StopProgram(ctx context.Context, name string) error {
	return m.tell(ctx, name, "stop")
}

// RestartProgram is both.
func (m Machine) RestartProgram(ctx context.Context, name string) error {
	return errors.Join(m.StopProgram(ctx, name), m.StartProgram(ctx, name))
}

// KillProgram ends one with SIGKILL; half a second later it is started again.
func (m Machine) KillProgram(ctx context.Context, name string) error {
	return m.tell(ctx, name, "kill")
}

func (m Machine) tell(ctx context.Context, name, verb string) error {
	pid, err := m.pid()
	if err != nil {
		return err
	}
	if _, err := request(ctx, socketOf(pid), http.MethodPost, "/programs/"+name+"/"+verb); err != nil {
		return fmt.Errorf("%s: %s %s: %w", m.Name, verb, name, err)
	}
	return nil
}

// socketOf is the path, from here, to the socket of a first process.
func socketOf(pid int) string { return fmt.Sprintf("/proc/%d/root%s", pid, initSocket) }

// request asks a first process.
func request(ctx context.Context, socket, method, path string) ([]byte, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://init"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(answer)))
	}
	return answer, err
}

// Memory that the machine's processes use, without the files that the kernel can drop.
func (m Machine) Memory() (int64, error) {
	s, err := readSpec(m.folder())
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(s.Cgroups, func(g cgroup) bool { return slices.Contains(strings.Split(g.Options, ","), "memory") })
	text, err := os.ReadFile(filepath.Join(s.Cgroups[i].Dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "total_rss "); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s/memory.stat has no total_rss", s.Cgroups[i].Dir)
}
