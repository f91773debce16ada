#!/bin/sh
# Runs inside a container that machine_test.go boots: installs the units as the
# package does, uses them, and writes one line NAME=RESULT for each step. The
# directory of this script has the daemons, the units and a client.
here=$(dirname "$0")
exec >"$here/results" 2>"$here/log"
set -x
say() { echo "$1=$2"; }
call() { "$here/client" "$@"; }
agent() { systemctl show -p MainPID --value holdfast-agent.service; }
broker() { systemctl show -p MainPID --value holdfast-broker.service; }
bob() { setpriv --reuid=bob --regid=bob --clear-groups env HOME=/home/bob XDG_RUNTIME_DIR="/run/user/$(id -u bob)" "$@"; }
# key NAME COMMAND... makes a key with a certificate, with holdfast as it is called.
key() {
	name=$1
	shift
	"$@" key create "$name" --purpose tls-client
	"$@" certificate request "$name" --subject "CN=$name" >"/run/$name.csr"
	openssl x509 -req -in "/run/$name.csr" -CA /run/ca.pem -CAkey /run/ca.key -days 1 -out "/run/$name.pem"
	"$@" certificate install "$name" "/run/$name.pem"
}
# profile KEY is one for a cluster that is not there.
profile() {
	printf 'key: %s\ncluster:\n  server: https://127.0.0.1:1\n  certificate-authority-data: |\n' "$1"
	sed 's/^/    /' /run/ca.pem
}
until_exists() { for _ in $(seq 100); do [ -e "$1" ] && return; sleep 0.1; done; }

# A small Debian lacks it, and the units must not need it.
rm -f /bin/kill
install -m755 "$here"/holdfast* /usr/bin/
install -D -m755 "$here/holdfast-piv" /usr/libexec/holdfast/holdfast-piv
rm /usr/bin/holdfast-piv
install -m644 "$here"/system/* /etc/systemd/system/
install -m644 "$here"/user/* /etc/systemd/user/
systemd-sysusers "$here/sysusers.conf"
systemd-tmpfiles --create "$here/tmpfiles.conf"
mkdir /run/tpm
swtpm socket --tpm2 --tpmstate dir=/run/tpm --server type=unixio,path=/run/tpm/s,mode=0666 --flags not-need-init,startup-clear --daemon
until_exists /run/tpm/s
printf 'device: swtpm:/run/tpm/s\npiv-roots: /srv/card/attestation-root.pem\n' >/etc/holdfast/agent.yaml
cp "$here/policy.yaml" /etc/holdfast/policy.yaml
systemctl daemon-reload
. "$here/card.sh"
card_appears

systemctl start holdfast-agent.socket holdfast-agent-admin.socket
say before "$(systemctl is-active holdfast-agent.service)"
say first "$(call /run/holdfast/agent.sock)"
say admin "$(call /run/holdfast/admin.sock)"
say other-user "$(setpriv --reuid=65533 --regid=65533 --clear-groups "$here/client" /run/holdfast/agent.sock)"
say other-user-admin "$(setpriv --reuid=65533 --regid=65533 --clear-groups "$here/client" /run/holdfast/admin.sock)"
status=/proc/$(agent)/status
say uid "$(awk '/^Uid:/ {print $2}' "$status" | xargs id -un)"
say groups "$(awk '/^Groups:/ {$1=""; print}' "$status" | xargs -n1 getent group | cut -d: -f1 | sort | xargs)"
say sandbox "$(awk '/^(CapBnd|NoNewPrivs|Seccomp):/ {print $2}' "$status" | xargs)"
say network "$([ "$(readlink "/proc/$(agent)/ns/net")" = "$(readlink /proc/1/ns/net)" ] && echo shared || echo private)"
say users "$([ "$(readlink "/proc/$(agent)/ns/user")" = "$(readlink /proc/1/ns/user)" ] && echo shared || echo private)"
card_of_the_machine
systemctl reload holdfast-agent.service
say reload $?
kill -9 "$(agent)"
say after-kill "$(call /run/holdfast/agent.sock)"
systemctl restart holdfast-agent.service
say restart "$(call /run/holdfast/agent.sock)"
systemctl stop holdfast-agent.service
say after-stop "$(call /run/holdfast/agent.sock)"
say state-directory "$(stat -c '%U %a' /var/lib/holdfast)"

# The timer keeps systemd from forgetting how the service ended.
systemctl start holdfast-renew.timer
say renew-timer "$(systemctl is-active holdfast-renew.timer)"
systemctl start holdfast-renew.service
say renew-nothing "$? $(systemctl show -p ConditionResult --value holdfast-renew.service)"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /run/ca.key -subj /CN=ca -days 1 -out /run/ca.pem
key node holdfast --socket /run/holdfast/admin.sock
profile node >/etc/holdfast/profiles/node.yaml
systemctl start holdfast-renew.service
say renew-not-due "$? $(systemctl show -p ConditionResult --value holdfast-renew.service)"
systemctl start holdfast-broker.socket
say broker-before "$(systemctl is-active holdfast-broker.service)"
say broker-first "$(call /run/holdfast/broker.sock)"
say broker-status "$(call /run/holdfast/broker.sock io.holdfast.Broker.GetStatus mode)"
say broker-other-user "$(setpriv --reuid=65533 --regid=65533 --clear-groups "$here/client" /run/holdfast/broker.sock io.holdfast.Broker.GetStatus mode)"
status=/proc/$(broker)/status
say broker-key "$(call /run/holdfast/broker.sock io.holdfast.Broker.GetStatus endpoint | grep -o 'sealed by the TPM')"
say broker-proxy "$(call /run/holdfast/broker.sock visit node)"
polkit_decides
say broker-uid "$(awk '/^Uid:/ {print $2}' "$status" | xargs id -un)"
say broker-sandbox "$(awk '/^(CapBnd|NoNewPrivs|Seccomp):/ {print $2}' "$status" | xargs)"
systemctl reload holdfast-broker.service
say broker-reload $?
kill -9 "$(broker)"
say broker-after-kill "$(call /run/holdfast/broker.sock)"
systemctl stop holdfast-broker.service
say broker-after-stop "$(call /run/holdfast/broker.sock)"
say broker-state "$(stat -c '%U %a' /var/lib/holdfast-broker)"
mkdir -p /etc/systemd/system/holdfast-broker.service.d
install -m644 "$here/proxy.conf" /etc/systemd/system/holdfast-broker.service.d/proxy.conf
systemctl daemon-reload
systemctl restart holdfast-broker.service
say broker-drop-in "$(awk '/^(CapEff|CapBnd):/ {print $2}' "/proc/$(broker)/status" | xargs)"
say broker-proxy-drop-in "$(call /run/holdfast/broker.sock visit node)"

systemctl --global enable holdfast-agent.socket holdfast-broker.socket holdfast-renew.timer
useradd -m bob
install -d -o bob /home/bob/.config/holdfast
echo 'device: none' >/home/bob/.config/holdfast/agent.yaml
# The user's broker asks the machine's agent, where bob has keys of his own.
key alice bob holdfast --socket /run/holdfast/agent.sock
echo 'agent-socket: /run/holdfast/agent.sock' >/home/bob/.config/holdfast/broker.yaml
install -d -o bob /home/bob/.config/holdfast/profiles
profile alice >/home/bob/.config/holdfast/profiles/prod.yaml
loginctl enable-linger bob
socket=/run/user/$(id -u bob)/holdfast/agent.sock
until_exists "$socket"
say user-first "$(bob "$here/client" "$socket")"
card_of_the_user "$socket"
card_disappears
bob systemctl --user reload holdfast-agent.service
say user-reload $?
status=/proc/$(bob systemctl --user show -p MainPID --value holdfast-agent.service)/status
say user-sandbox "$(awk '/^(NoNewPrivs|Seccomp):/ {print $2}' "$status" | xargs)"
bob systemctl --user kill -s KILL holdfast-agent.service
say user-after-kill "$(bob "$here/client" "$socket")"

socket=/run/user/$(id -u bob)/holdfast/broker.sock
say user-broker-before "$(bob systemctl --user is-active holdfast-broker.service)"
say user-broker "$(bob "$here/client" "$socket")"
say user-broker-status "$(bob "$here/client" "$socket" io.holdfast.Broker.GetStatus mode)"
say user-broker-key "$(bob "$here/client" "$socket" io.holdfast.Broker.GetStatus endpoint | grep -o 'sealed by the TPM')"
say user-broker-proxy "$(bob "$here/client" "$socket" visit prod)"
say user-broker-agent "$(bob "$here/client" "$socket" io.holdfast.Broker.GetStatus agentSocket)"
bob systemctl --user reload holdfast-broker.service
say user-broker-reload $?
status=/proc/$(bob systemctl --user show -p MainPID --value holdfast-broker.service)/status
say user-broker-sandbox "$(awk '/^(NoNewPrivs|Seccomp):/ {print $2}' "$status" | xargs)"
say user-broker-state "$(stat -c '%U %a' /home/bob/.local/state/holdfast-broker)"
say user-renew-timer "$(bob systemctl --user is-active holdfast-renew.timer)"
journalctl --no-pager -u 'holdfast*' >&2
journalctl --no-pager --user-unit 'holdfast*' >&2
systemctl poweroff --force --force
