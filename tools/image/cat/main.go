// Command cat copies files, or its standard input, to its standard output. The
// thin image has no shell and no coreutils, and existing probes of the thin
// DaemonSet run `cat` on the generated configuration.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run goes on after a file that cannot be read, and says so in the exit code.
func run(names []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	code := 0
	for _, name := range names {
		if err := show(name, stdin, stdout); err != nil {
			fmt.Fprintln(stderr, "cat:", err)
			code = 1
		}
	}
	return code
}

func show(name string, stdin io.Reader, stdout io.Writer) error {
	if name == "-" {
		_, err := io.Copy(stdout, stdin)
		return err
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(stdout, file)
	return err
}
