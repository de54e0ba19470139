package trial

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// nodeLinks sets up the node's own links: loopback, and an interface for each one
// that a network names as its master or device. It is one end of a veth pair, whose
// other end stands for the wire.
func (f *Folder) nodeLinks() error {
	if err := up("lo"); err != nil {
		return err
	}
	for _, name := range slices.Concat(f.strings("", "master"), f.strings("", "device")) {
		if _, err := netlink.LinkByName(name); err == nil {
			continue
		}
		wire := "wire-" + name
		wire = wire[:min(len(wire), 15)] // the kernel's limit
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: wire}); err != nil {
			return fmt.Errorf("making the interface %q that a network names: %w", name, err)
		}
		if err := errors.Join(up(name), up(wire)); err != nil {
			return err
		}
	}
	return nil
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("setting up the interface %s: %w", name, err)
	}
	return nil
}

// linkNames lists the links of this namespace, without bridges: the bridge plugin
// leaves those, for it cannot know who else uses them.
func linkNames() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the node's links: %w", err)
	}
	var names []string
	for _, l := range links {
		if l.Type() != "bridge" {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}
