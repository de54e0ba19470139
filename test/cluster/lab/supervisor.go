package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// restartDelay is how long a program that ended stays so.
	restartDelay = 500 * time.Millisecond
	// stopGrace is what a program has from SIGTERM to SIGKILL. kube-apiserver would
	// take a minute to end its watches, which no test waits for.
	stopGrace = 3 * time.Second
	// dialDelay is between two looks at a program's After.
	dialDelay = 100 * time.Millisecond
)

// Program is the state of a program of a machine.
type Program struct {
	Name   string
	Wanted bool // it is started again when it ends
	PID    int  // as the machine sees it; 0 while it does not run
	Starts int  // since the machine's start
}

// supervisor runs the programs of a machine, as its first process: it collects every
// orphan that ends there, too. Its programs are all guarded by mu; changed tells of
// each change.
type supervisor struct {
	environment []string
	logs        string // folder

	mu       sync.Mutex
	changed  sync.Cond
	programs []*supervised
}

// supervised is a program in the care of its own goroutine (see [supervisor.run]).
type supervised struct {
	program
	state Program
}

func newSupervisor(s spec, logs string) *supervisor {
	sup := &supervisor{environment: s.environment(), logs: logs}
	sup.changed.L = &sup.mu
	for _, p := range s.Programs {
		sup.programs = append(sup.programs, &supervised{p, Program{Name: p.Name}})
	}
	return sup
}

// serve does what it is told through the listener.
func (s *supervisor) serve(listener net.Listener) error {
	go s.reap()
	for _, p := range s.programs {
		go s.run(p)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /programs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.list()) // the caller has gone
	})
	for verb, do := range map[string]func(*supervised) error{"start": s.start, "stop": s.stop, "kill": s.kill} {
		mux.HandleFunc("POST /programs/{name}/"+verb, func(w http.ResponseWriter, r *http.Request) {
			if err := s.apply(r.PathValue("name"), do); err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
		})
	}
	return http.Serve(listener, mux)
}

func (s *supervisor) list() []Program {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Program, len(s.programs))
	for i, p := range s.programs {
		list[i] = p.state
	}
	return list
}

// apply calls do under the lock.
func (s *supervisor) apply(name string, do func(*supervised) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	for _, p := range s.programs {
		if p.Name == name {
			return do(p)
		}
	}
	return fmt.Errorf("there is no program %q", name)
}

// start does not wait until it runs.
func (s *supervisor) start(p *supervised) error {
	p.state.Wanted = true
	return nil
}

// stop returns when it has ended.
func (s *supervisor) stop(p *supervised) error {
	p.state.Wanted = false
	pid := p.state.PID
	if pid == 0 {
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGTERM) // not collected yet, so it is there
	impatient := time.AfterFunc(stopGrace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.state.PID == pid {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	defer impatient.Stop()
	s.awaitEnd(p, pid)
	return nil
}

// kill returns when it has ended; it is started again, as after any end.
func (s *supervisor) kill(p *supervised) error {
	pid := p.state.PID
	if pid == 0 {
		return fmt.Errorf("%s does not run", p.Name)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	s.awaitEnd(p, pid)
	return nil
}

func (s *supervisor) awaitEnd(p *supervised, pid int) {
	for p.state.PID == pid {
		s.changed.Wait()
	}
}

// run starts the program whenever it is wanted and does not run.
func (s *supervisor) run(p *supervised) {
	for {
		s.mu.Lock()
		for !p.state.Wanted {
			s.changed.Wait()
		}
		delay := dialDelay
		if p.ready() {
			if pid := s.launch(p); pid != 0 {
				s.awaitEnd(p, pid)
			}
			delay = restartDelay
		}
		s.mu.Unlock()
		<-time.After(delay)
	}
}

// ready says whether what the program needs is there.
func (p program) ready() bool {
	network, address, needs := strings.Cut(p.After, ":")
	if !needs {
		return true
	}
	conn, err := net.DialTimeout(network, address, dialDelay)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// launch returns 0 where it could not be started.
func (s *supervisor) launch(p *supervised) int {
	log, err := os.OpenFile(filepath.Join(s.logs, p.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintf(os.Stderr, "starting %s: %v\n", p.Name, err)
		return 0
	}
	defer log.Close()
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.environment, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(log, "lab: not started:", err)
		return 0
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release() // reap waits for it
	p.state.PID = pid
	p.state.Starts++
	s.changed.Broadcast()
	return pid
}

// reap collects every child that ends.
func (s *supervisor) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != nil || pid == 0 {
			<-ended
			continue
		}
		s.mu.Lock() // which launch holds until it has noted the pid
		for _, p := range s.programs {
			if p.state.PID == pid {
				fmt.Fprintf(os.Stderr, "%s %s has ended: exit code %d, signal %d\n",
					time.Now().Format(time.TimeOnly), p.Name, status.ExitStatus(), status.Signal())
				p.state.PID = 0
				s.changed.Broadcast()
			}
		}
		s.mu.Unlock()
	}
}
