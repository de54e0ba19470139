package lab

import (
	"net"
	"os"
	"testing"
)

// supervisorName runs this binary as a machine's supervisor, alone in a pid namespace:
// it collects every process that ends, which no other test could bear.
const supervisorName = "lab-test-supervisor"

func TestMain(m *testing.M) {
	if os.Args[0] == supervisorName {
		listener, err := net.Listen("unix", os.Args[1])
		if err != nil {
			panic(err)
		}
		panic(newSupervisor(supervisorSpec, os.Args[2]).serve(listener))
	}
	os.Exit(m.Run())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
