package nodecert

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// leastDuration is the API's: it refuses requests for less.
const leastDuration = 10 * time.Minute

// tick is how often the file is looked at, which somebody may remove or damage.
const tick = time.Second

// retry is how long it takes after a failed request until the next.
var retry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 2 * time.Minute}

// Options say whose certificate it is, and where.
type Options struct {
	Node string
	// Bootstrap is the kubeconfig with which the first certificate is asked for, and
	// another when the API server does not take the current one.
	Bootstrap string
	// Dir is where the certificate is kept.
	Dir string
	// Duration is how long a certificate is asked for; the signer may give less.
	Duration time.Duration
	Log      *slog.Logger
}

// Keeper keeps one certificate.
type Keeper struct {
	Options
	store store

	// Of the goroutine of Run.
	pair    *tls.Certificate // the last one that was good; nil for none
	content []byte           // pair as it is stored
	renew   time.Time        // when another is asked for
	damage  string           // what was told of the file

	mu    sync.Mutex
	until time.Time // the end of the certificate
	last  error     // of the last request
}

// New prepares a Keeper.
func New(o Options) (*Keeper, error) {
	switch {
	case o.Node == "":
		return nil, errors.New("the node's name is not known: set MULTUS_NODE_NAME to spec.nodeName")
	case o.Duration < leastDuration:
		return nil, fmt.Errorf("a certificate for %s: want %s at least, or the API server refuses the request", o.Duration, leastDuration)
	}
	if _, _, err := readKubeconfig(o.Bootstrap); err != nil {
		return nil, err
	}
	return &Keeper{Options: o, store: store{o.Dir}}, nil
}

// Check says what is wrong with the certificate that somebody keeps with these options; nil for
// nothing.
func Check(o Options) error {
	k := &Keeper{Options: o, store: store{o.Dir}}
	pair, _, err := k.store.load()
	if err == nil {
		err = k.fits(pair, time.Now())
	}
	if err != nil {
		return fmt.Errorf("this node has no valid client certificate: %w", err)
	}
	return nil
}

// Problem says why there is no valid certificate; nil where there is one.
func (k *Keeper) Problem() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case time.Now().Before(k.until):
		return nil
	case k.last != nil:
		return fmt.Errorf("this node has no valid client certificate: %w", k.last)
	default:
		return errors.New("this node has no valid client certificate yet")
	}
}

// Run keeps the certificate until ctx ends. Failures are logged and tried again. A request
// may wait long for its approval: what is stored is looked at all the while, and where
// somebody else has renewed it, nothing is waited for any more.
func (k *Keeper) Run(ctx context.Context) {
	pause, next := retry, time.Time{}
	var pending *request
	defer func() { pending.end() }()
	for ctx.Err() == nil {
		now := time.Now()
		k.look(now)
		due := !now.Before(k.renew)
		switch {
		case !due && pending != nil:
			pending.end()
			pending = nil
			k.Log.Info("somebody else has renewed the client certificate, the request is given up", "file", k.store.current())
		case due && pending == nil && !now.Before(next):
			pending = k.ask(ctx, now)
		}
		sleep := tick
		if !due {
			sleep = min(tick, time.Until(k.renew))
		}
		select {
		case <-ctx.Done():
		case got := <-pending.answered():
			pending.end()
			pending = nil
			if err := k.accept(got); err == nil {
				pause = retry
			} else if ctx.Err() == nil {
				delay := pause.Step()
				next = time.Now().Add(delay)
				k.Log.Error("no new client certificate", "again in", delay.Round(time.Second).String(), "error", err)
			}
		case <-time.After(sleep):
		}
	}
}

// request is a certificate that is asked for. Nil is none.
type request struct {
	stop   context.CancelFunc
	answer chan answer
}

// answer is certificate and key in PEM, or why there are none.
type answer struct {
	content []byte
	err     error
}

// ask asks for a new pair, with the current one while that is good.
func (k *Keeper) ask(ctx context.Context, now time.Time) *request {
	var own []byte
	if k.pair != nil && now.Before(k.pair.Leaf.NotAfter) {
		own = k.content
	}
	ctx, stop := context.WithCancel(ctx)
	r := &request{stop, make(chan answer, 1)}
	go func() {
		defer close(r.answer)
		content, err := k.obtain(ctx, own)
		r.answer <- answer{content, err}
	}()
	return r
}

func (r *request) answered() <-chan answer {
	if r == nil {
		return nil
	}
	return r.answer
}

// end gives a request up, and returns when nothing of it is left.
func (r *request) end() {
	if r == nil {
		return
	}
	r.stop()
	for range r.answer {
	}
}

// look takes over what is stored. A file that is missing or damaged while the pair in it
// would still be good is put back: readers may come at any time.
func (k *Keeper) look(now time.Time) {
	pair, content, err := k.store.load()
	if err == nil && bytes.Equal(content, k.content) {
		return
	}
	if err == nil {
		err = k.fits(pair, now)
	}
	if err == nil {
		k.take(pair, content)
		return
	}
	if k.pair != nil && now.Before(k.pair.Leaf.NotAfter) {
		if again := k.store.save(k.content, now); again != nil {
			err = errors.Join(err, again)
		}
	}
	if err.Error() != k.damage {
		k.damage = err.Error()
		k.Log.Warn("the stored client certificate is not good", "cause", err)
	}
}

// fits tells whether a stored pair is a valid one of this node.
func (k *Keeper) fits(pair *tls.Certificate, now time.Time) error {
	switch leaf := pair.Leaf; {
	case leaf.Subject.CommonName != UserPrefix+k.Node:
		return fmt.Errorf("%s is of %s", k.store.current(), leaf.Subject.CommonName)
	case !now.Before(leaf.NotAfter):
		return fmt.Errorf("%s has expired at %s", k.store.current(), leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// take makes a pair the current one. It is renewed after 70 to 90 percent of its life,
// so that nodes do not all ask at once.
func (k *Keeper) take(pair *tls.Certificate, content []byte) {
	life := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	k.pair, k.content, k.damage = pair, content, ""
	k.renew = pair.Leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*rand.Float64())))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until = pair.Leaf.NotAfter
}

// accept stores the new pair of an answer.
func (k *Keeper) accept(a answer) (err error) {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.last = err
	}()
	if a.err != nil {
		return a.err
	}
	pair, err := parse(a.content)
	if err != nil {
		return fmt.Errorf("the signer's answer: %w", err)
	}
	if err := k.store.save(a.content, time.Now()); err != nil {
		return err
	}
	k.take(pair, a.content)
	k.Log.Info("a client certificate is in place", "file", k.store.current(), "until", pair.Leaf.NotAfter.Format(time.RFC3339))
	return nil
}
