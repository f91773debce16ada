package pivcard

import (
	"maps"
	"slices"
)

// A Command is the header of an APDU that the card received. Its data, which
// may be a PIN, is not kept.
type Command struct {
	Class       byte
	Instruction Instruction
	P1, P2      byte
	Length      int // of the data, in bytes
}

// maxJournal bounds the commands that are kept; counts go on.
const maxJournal = 100_000

type journal struct {
	commands []Command
	counts   map[Instruction]int
	pinTries int
}

// record notes a command before anything is done with it, so that one which a
// fault swallows is counted too.
func (j *journal) record(raw []byte) {
	cmd, err := parse(raw)
	if err != nil {
		return
	}
	if j.counts == nil {
		j.counts = map[Instruction]int{}
	}
	if cmd.cla&chainBit == 0 {
		j.counts[cmd.ins]++
	}
	if cmd.ins == Verify && len(cmd.data) > 0 {
		j.pinTries++
	}
	if len(j.commands) < maxJournal {
		j.commands = append(j.commands, Command{cmd.cla, cmd.ins, cmd.p1, cmd.p2, len(cmd.data)})
	}
}

// PINTries returns how many VERIFY with a PIN in them the card has received
// since it was made or Forget was called.
func (c *Card) PINTries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pinTries
}

// Count returns how many commands with the instruction the card has received.
// A chain counts once, with its last link.
func (c *Card) Count(ins Instruction) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[ins]
}

// Counts returns the number of commands received for each instruction.
func (c *Card) Counts() map[Instruction]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Commands returns the headers of the commands received, the oldest first, each
// link of a chain for itself: at most the first 100,000.
func (c *Card) Commands() []Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.commands)
}

// Forget empties the journal: all counts start at 0 again.
func (c *Card) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal = journal{}
}
