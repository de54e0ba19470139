package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// pollInterval is how often a client looks for the daemon's socket.
const pollInterval = 100 * time.Millisecond

// maxAnswer bounds what a client reads of an answer.
const maxAnswer = 64 << 20

// Client talks to the daemon of this node. It keeps one connection open between
// its calls: the daemon gives the place of an admitted ADD back when the
// connection closes. Safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient makes a client for the socket in a folder. It does not connect yet.
func NewClient(socketDir string) *Client {
	socket := filepath.Join(socketDir, SocketName)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial, MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1, DisableCompression: true}
	return &Client{socket: socket, http: &http.Client{Transport: transport}}
}

// Close gives the connection, and with it the place among the admitted ADDs, back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Plan asks for the plan of an ADD. It looks for the daemon until wait has passed,
// then waits for the answer until ctx ends: the daemon queues what it cannot admit.
// Errors carry CNI codes; a daemon that is not there is code 11 and names the socket.
func (c *Client) Plan(ctx context.Context, wait time.Duration, req PlanRequest) (PlanResponse, error) {
	var answer PlanResponse
	began := time.Now()
	for {
		err := c.post(ctx, PathPlan, req, &answer)
		var away *net.OpError
		if err == nil || !errors.As(err, &away) || away.Op != "dial" {
			return answer, c.explain(ctx, err)
		}
		if time.Since(began)+pollInterval > wait || ctx.Err() != nil {
			return answer, c.away(began, err)
		}
		select {
		case <-ctx.Done():
			return answer, c.away(began, err)
		case <-time.After(pollInterval):
		}
	}
}

func (c *Client) away(began time.Time, err error) error {
	return WithCode(types.ErrTryAgainLater, fmt.Errorf(
		"the Multus daemon does not answer on %s (waited %v): see that its pod runs on this node: %w", c.socket, time.Since(began).Round(pollInterval), err))
}

func (c *Client) explain(ctx context.Context, err error) error {
	var cni *types.Error
	if err == nil || errors.As(err, &cni) {
		return err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer in time, it may be busy with other pods: %w", err)
	}
	return WithCode(types.ErrTryAgainLater, fmt.Errorf("the Multus daemon on %s: %w", c.socket, err))
}

// Tell sends a report and does not wait for the answer, which it has no use for. Over
// a connection of its own: the daemon reads it also when this process has ended.
func (c *Client) Tell(ctx context.Context, r Report) error {
	raw, err := marshal(r)
	if err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return c.explain(ctx, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return c.explain(ctx, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://dummy"+PathReport, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.explain(ctx, req.Write(conn))
}

// Report tells how an operation ended, once: a daemon that is away reads it from
// the ledger later.
func (c *Client) Report(ctx context.Context, r Report) (ReportResponse, error) {
	var answer ReportResponse
	err := c.post(ctx, PathReport, r, &answer)
	return answer, c.explain(ctx, err)
}

// Get reads a path as text, for health and status.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

// CNI sends a request as Multus v4's clients do, to PathCNI or PathDelegate.
func (c *Client) CNI(ctx context.Context, path string, req Request) (Response, error) {
	var answer Response
	err := c.post(ctx, path, req, &answer)
	return answer, c.explain(ctx, err)
}

func (c *Client) post(ctx context.Context, path string, body, answer any) error {
	raw, err := marshal(body)
	if err != nil {
		return fmt.Errorf("the request cannot be written: %w", err)
	}
	got, err := c.do(ctx, http.MethodPost, path, raw)
	if err != nil || len(bytes.TrimSpace(got)) == 0 {
		return err
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	// v4's clients use the host "dummy" (contract 1.8); the socket decides where it goes.
	req, err := http.NewRequestWithContext(ctx, method, "http://dummy"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, readError(resp.StatusCode, got)
	}
	return got, nil
}
