// Up starts a Kubernetes control plane for shell scripts, prints what they need
// as assignments, and ends it when its standard input closes:
//
//	mkfifo hold out
//	up "$(test/kube/build)" <hold >out & exec 9>hold; eval "$(sed /^KUBE_READY=/q out)"
//
// See package kube for what is started.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"holdfast/test/kube"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: up DIRECTORY-OF-THE-KUBERNETES-PROGRAMS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "up: error:", err)
		os.Exit(1)
	}
}

func run(programs string, stdin io.Reader, stdout io.Writer) error {
	plane, err := kube.New(kube.Options{Controllers: true, Programs: programs})
	if err != nil {
		return err
	}
	defer plane.Close()
	token, err := plane.BootstrapToken()
	if err != nil {
		return err
	}
	if err := plane.ApproveNodes(); err != nil {
		return err
	}
	node, err := plane.NewNode("node-1")
	if err != nil {
		return err
	}
	defer node.Close()
	pod, err := node.NewPod("web")
	if err != nil {
		return err
	}
	pod.Log("hello from a pod")

	out := bufio.NewWriter(stdout)
	for _, line := range [][2]string{
		{"KUBE_SERVER", plane.URL},
		{"KUBE_CA", plane.Authority.CertFile},
		{"KUBE_ADMIN", plane.Admin},
		{"KUBE_BOOTSTRAP_TOKEN", token},
		{"KUBE_POD", pod.Name},
		{"KUBE_READY", "yes"},
	} {
		fmt.Fprintf(out, "%s='%s'\n", line[0], line[1])
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}
