package ledger

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/api"
)

// BootID is the kernel's id of this boot; empty where /proc does not tell, which
// no process on a node can rely on for more than a hint.
func BootID() string {
	raw, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw))
}

// Place identifies the ledger's folder, which is created where it is missing.
func (l *Ledger) Place() (api.Place, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return api.Place{}, err
	}
	return PlaceOf(l.dir, l.bootID)
}

// PlaceOf identifies a folder: the same one has the same device and inode under
// whatever path a mount namespace shows it.
func PlaceOf(dir, bootID string) (api.Place, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return api.Place{}, fmt.Errorf("%s: %w", dir, err)
	}
	return api.Place{Path: dir, Device: st.Dev, Inode: st.Ino, BootID: bootID}, nil
}
