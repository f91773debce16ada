package desktop

import (
	"strings"
	"testing"
)

func TestTerminal(t *testing.T) {
	terminal := OpenTerminal(t, []string{"WHO=a person"}, `read line; echo "$WHO typed $line on $(tty)"; exec cat`)
	terminal.Type("hello")
	if screen := terminal.Await("a person typed hello on /dev/pts/"); !strings.HasPrefix(screen, "hello\n") {
		t.Errorf("the terminal does not show what is typed:\n%s", screen)
	}
}
