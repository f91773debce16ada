package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// watchTime is the duration of one watch. The request is read again after it, so that
// a change that the watch has missed is still seen.
const watchTime = time.Minute

// event is one line of a watch.
type event struct {
	Type   string          `json:"type"` // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object json.RawMessage `json:"object"`
}

// watch waits for a change of the request on one watch. It returns neither a
// certificate nor an error when the watch ended without one.
func (w *waiting) watch(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+10*time.Second) // the server ends it at watchTime
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "fieldSelector": {"metadata.name=" + w.name}, "resourceVersion": {w.version},
		"timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
	}
	response, err := w.client.once(ctx, http.MethodGet, requestsPath, query, nil)
	var refused *StatusError
	if errors.As(err, &refused) && (refused.Code == http.StatusForbidden || refused.Code == http.StatusMethodNotAllowed) {
		w.polling = true
	}
	if err != nil {
		return nil, nil // the next poll returns the error, if it persists
	}
	defer response.Body.Close()
	started := time.Now()
	certificate, err := w.read(response.Body)
	if time.Since(started) > firstDelay {
		w.delay = 0 // the watch worked for a while
	}
	return certificate, err
}

// read reads events until one decides the request, or the watch ends.
func (w *waiting) read(body io.Reader) ([]byte, error) {
	bounded := &bounded{from: body}
	decoder := json.NewDecoder(bounded)
	for {
		bounded.left = maxBody
		var e event
		if decoder.Decode(&e) != nil {
			return nil, nil
		}
		var o signingRequest
		switch e.Type {
		case "DELETED":
			return nil, w.gone()
		case "ADDED", "MODIFIED":
			if json.Unmarshal(e.Object, &o) != nil {
				return nil, nil
			}
			if certificate, err := w.outcome(o); certificate != nil || err != nil {
				return certificate, err
			}
			w.version = o.Metadata.ResourceVersion
		case "ERROR": // such as 410: the version is too old to watch from
			return nil, nil
		}
	}
}

// bounded ends after left bytes.
type bounded struct {
	from io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errors.New("an event is too long")
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
