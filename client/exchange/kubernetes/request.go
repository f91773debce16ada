package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxBody    = 1 << 20 // of an answer, in bytes
	maxRetries = 10      // of one request
)

// post sends in and reads the answer into out.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, path, nil, body, out)
}

func (c *Client) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, nil, out)
}

// do makes a request, retries it when the server says so, and reads the answer.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte, out any) error {
	response, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := readBody(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: answer: %w", method, path, err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not an API server's: %w", method, path, err)
	}
	return nil
}

// send makes a request, retries it when the server says so, and returns an answer
// with a success code and an unread body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	for try := 0; ; try++ {
		response, err := c.once(ctx, method, path, query, body)
		var refused *StatusError
		if err == nil || !errors.As(err, &refused) || !refused.passing() || try == maxRetries {
			return response, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < refused.After {
			return nil, err
		}
		if c.wait(ctx, max(refused.After, time.Second)) != nil {
			return nil, err
		}
	}
}

// passing reports whether the server rejects the request for the moment only, with a
// delay short enough to wait.
func (e *StatusError) passing() bool {
	return e.After > 0 && e.After <= time.Minute && (e.Code == http.StatusTooManyRequests || e.Code >= 500)
}

func (c *Client) once(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	address, err := c.address(path, query)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "holdfast")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.HTTP.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", request.URL.Host, err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	answer, _ := readBody(response.Body) // without it, the code still names the failure
	return nil, newStatusError(response, answer)
}

// address returns the URL of a path on the server, which must use HTTPS: a
// credential must not cross the network in clear text.
func (c *Client) address(path string, query url.Values) (string, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("the API server's address is not https://HOST[:PORT][/PATH]")
	}
	if c.HTTP == nil {
		return "", errors.New("there is no way to sign in to the API server")
	}
	address := strings.TrimRight(c.Server, "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return address, nil
}

// readBody reads an answer of bounded size.
func readBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("it is longer than %d bytes", maxBody)
	}
	return body, err
}

func (c *Client) wait(ctx context.Context, d time.Duration) error {
	if c.pause != nil {
		return c.pause(ctx, d)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
