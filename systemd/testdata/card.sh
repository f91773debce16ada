# shellcheck shell=sh
# The part of machine.sh about cards: a card of software behind a pcscd of its own,
# which the agents reach through their sandboxes and their child.

# admin COMMAND... is root with the machine's agent.
admin() { holdfast --socket /run/holdfast/admin.sock "$@"; }

# Both managers hand the way to pcscd on to the agents; a real one is where
# libpcsclite looks by itself.
card_appears() {
	mkdir -m 755 /srv/card
	mkfifo /srv/card/hands
	"$here/up" -serial 4711 -dir /srv/card </srv/card/hands >/srv/card/out &
	card=$!
	exec 9>/srv/card/hands
	for _ in $(seq 100); do grep -q READY /srv/card/out && break; sleep 0.1; done
	systemctl set-environment PCSCLITE_CSOCK_NAME=/srv/card/run/pcscd.comm
}

# inside COMMAND... runs a command with the files as the agent sees them, and prints
# its exit code: 126 means that the program must not be executed. The loader itself may
# be executed, and returns 127 for a program that must not.
inside() {
	nsenter --mount --target "$(agent)" "$@"
	echo $?
}

card_of_the_machine() {
	printf 864209 >/run/pin
	say card-list "$(admin piv list | grep -c '^card *4711$')"
	admin piv setup --yes --pin-fd 3 --generate-puk 3</run/pin
	admin key create card --backend piv --purpose tls-client --pin-fd 3 3</run/pin
	say card-key "$(admin key show card | grep '^attestation')"
	admin unlock card --pin-fd 3 3</run/pin
	say card-signs "$(admin certificate request card --subject CN=card | openssl req -verify -noout 2>&1 | grep -o OK)"
	child=$(pgrep --parent "$(agent)" holdfast-piv | tail -n 1)
	say card-child "$(awk '/^(CapBnd|NoNewPrivs|Seccomp):/ {print $2}' "/proc/$child/status" | xargs)"
	say card-child-runs "$(inside /usr/libexec/holdfast/holdfast-piv --version | tail -n 1)"
	say shell-runs "$(inside /bin/sh -c true)"
	say systemd-runs "$(inside /usr/lib/systemd/systemd --version)"
	say loader-runs "$(inside /lib64/ld-linux-x86-64.so.2 /bin/true)"
}

# polkit_decides lets polkit say who may use cards, with the action of a pcscd that
# asks it (Debian's does from version 13 on), and with the package's rule.
polkit_decides() {
	install -D -m644 "$here/polkit.rules" /usr/share/polkit-1/rules.d/holdfast.rules
	install -D -m644 "$here/pcsc.policy" /usr/share/polkit-1/actions/org.debian.pcsc-lite.policy
	for action in access_pcsc access_card; do
		say "polkit-$action" "$(may "$action" "$(agent)") $(may "$action" "$(broker)")"
	done
}

# may ACTION PID prints 0 when the process may, and another number when it may not.
may() {
	pkcheck --action-id "org.debian.pcsc-lite.$1" --process "$2" >&2
	echo $?
}

# card_of_the_user SOCKET lists the card with bob's own agent.
card_of_the_user() {
	bob systemctl --user set-environment PCSCLITE_CSOCK_NAME=/srv/card/run/pcscd.comm
	bob systemctl --user restart holdfast-agent.service
	say user-card "$(bob holdfast --socket "$1" piv list | grep -c '^card *4711$')"
}

# card_disappears ends pcscd with the card. An agent that has not noticed yet has a
# list of the cards that it knew, with the present fault.
card_disappears() {
	exec 9>&-
	wait "$card"
	for _ in $(seq 100); do admin piv list >/run/gone 2>&1 || break; sleep 0.1; done
	say card-gone "$(grep '^holdfast: error:' /run/gone)"
}
