package audit

import "slices"

// maxSearch is how far back Tail looks, in bytes: a caller whose records are rare
// must not make the agent read a log of years.
const maxSearch = 16 << 20

// Tail returns the newest n lines for whose records keep returns true, oldest
// first, as the JSON texts that they are. A nil keep takes all. It looks at the
// last 16 MiB of the log and skips lines that are not records.
func (l *Log) Tail(n int, keep func(*Record) bool) ([]string, error) {
	return l.tail(n, keep, maxSearch)
}

func (l *Log) tail(n int, keep func(*Record) bool, reach int64) ([]string, error) {
	l.mu.Lock()
	end := l.head.Bytes
	l.mu.Unlock()
	var newest []string
	for limit := max(0, end-reach); end > limit && len(newest) < n; {
		line, err := l.lineBefore(end)
		if err != nil {
			return nil, err
		}
		end -= int64(len(line)) + 1
		r, err := decode(line)
		if err != nil || keep != nil && !keep(&r) {
			continue
		}
		newest = append(newest, string(line))
	}
	slices.Reverse(newest)
	return newest, nil
}
