package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestC1_2Flags(t *testing.T) {
	image := t.TempDir()
	for _, name := range []string{"multus-shim", "multus", "passthru"} {
		if err := os.WriteFile(filepath.Join(image, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dest, installed := t.TempDir(), t.TempDir()
	from := []string{"--source-dir", image}
	tests := map[string]struct {
		args []string
		exit int
		says string // on standard error
	}{
		"help":          {[]string{"--help"}, 1, "--dest-dir string       the node's folder of CNI plugins (default \"/host/opt/cni/bin\")"},
		"-h":            {[]string{"-h"}, 1, "-t, --type string"},
		"no type":       {append(from, "-d", dest), 1, `install_multus: --type is "": want thick or thin`},
		"unknown flag":  {[]string{"--typ", "thick"}, 1, "install_multus: unknown flag: --typ"},
		"no folder":     {append(from, "--type", "thick", "--dest-dir", dest+"/absent"), 1, "install_multus: cannot write " + dest + "/absent/multus-shim: open "},
		"short":         {append(from, "-t", "thin", "-d", dest), 0, ""},
		"nothing there": {[]string{"--uninstall", "-d", dest + "/absent", "--cni-conf-dir", dest, "--cni-dir", dest + "/absent", "--socket-dir", dest + "/absent"}, 0, ""},
		"no network":    {[]string{"--uninstall", "-d", installed, "--cni-conf-dir", dest, "--cni-dir", dest + "/absent", "--socket-dir", dest + "/absent"}, 1, "install_multus: without Multus there would be no network configuration in " + dest},
		"forced":        {[]string{"--uninstall", "--force", "-d", installed, "--cni-conf-dir", dest, "--cni-dir", dest + "/absent", "--socket-dir", dest + "/absent"}, 0, ""},
		"long":          {append(from, "--type=thick", "--dest-dir="+dest), 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(installed, "multus-shim"), nil, 0o755); err != nil { // for --uninstall
				t.Fatal(err)
			}
			var out, errs strings.Builder
			if exit := run(t.Context(), tt.args, &out, &errs); exit != tt.exit {
				t.Errorf("exit %d, want %d", exit, tt.exit)
			}
			if !strings.Contains(errs.String(), tt.says) || tt.says == "" && errs.String() != "" || strings.Contains(errs.String(), "source-dir") {
				t.Errorf("standard error is %q, want %q", errs.String(), tt.says)
			}
		})
	}
}
