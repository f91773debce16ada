package systemd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"holdfast/internal/varlink"
)

// visit does in the container what kubectl does: it runs the plugin, whose parent
// this process is, and asks the broker's proxy with the ticket for a cluster that
// is not there. How far that came is in the answer's code and reason: 502 when
// everything before the cluster let it pass.
func visit(socket, profile string) string {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var status struct {
		Endpoint struct{ Address, Certificate string }
	}
	if err := varlink.NewConn(conn).Call(ctx, "io.holdfast.Broker.GetStatus", struct{}{}, &status); err != nil {
		return err.Error()
	}
	ticket, err := plugin(ctx, socket, profile)
	if err != nil {
		return err.Error()
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(status.Endpoint.Certificate))
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: profile + ".holdfast.internal"},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+status.Endpoint.Address+"/version", nil)
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+ticket)
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	var said struct{ Message string }
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
		return err.Error()
	}
	fmt.Fprintln(os.Stderr, said.Message)
	return fmt.Sprint(response.StatusCode)
}

// plugin runs the plugin beside this program as client-go does.
func plugin(ctx context.Context, socket, profile string) (ticket string, err error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/holdfast-exec-plugin", "--profile", profile, "--socket", socket)
	cmd.Env = []string{`KUBERNETES_EXEC_INFO={"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}`}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("plugin: %w", err)
	}
	var credential struct{ Status struct{ Token string } }
	err = json.Unmarshal(out, &credential)
	return credential.Status.Token, err
}
