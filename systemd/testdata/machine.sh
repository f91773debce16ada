#!/bin/sh
# Runs inside a container that machine_test.go boots: installs the units as the
# package does, uses them, and writes one line NAME=RESULT for each step. The
# directory of this script has the agent, the units and a client.
here=$(dirname "$0")
exec >"$here/results" 2>"$here/log"
set -x
say() { echo "$1=$2"; }
call() { "$here/client" "$@"; }
agent() { systemctl show -p MainPID --value holdfast-agent.service; }
bob() { setpriv --reuid=bob --regid=bob --clear-groups env HOME=/home/bob XDG_RUNTIME_DIR="/run/user/$(id -u bob)" "$@"; }
until_exists() { for _ in $(seq 100); do [ -e "$1" ] && return; sleep 0.1; done; }

# A small Debian lacks it, and the units must not need it.
rm -f /bin/kill
install -m755 "$here/holdfast-agent" /usr/bin/holdfast-agent
install -m644 "$here"/system/* /etc/systemd/system/
install -m644 "$here"/user/* /etc/systemd/user/
systemd-sysusers "$here/sysusers.conf"
systemd-tmpfiles --create "$here/tmpfiles.conf"
echo 'device: none' >/etc/holdfast/agent.yaml
systemctl daemon-reload

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
systemctl reload holdfast-agent.service
say reload $?
kill -9 "$(agent)"
say after-kill "$(call /run/holdfast/agent.sock)"
systemctl restart holdfast-agent.service
say restart "$(call /run/holdfast/agent.sock)"
systemctl stop holdfast-agent.service
say after-stop "$(call /run/holdfast/agent.sock)"
say state-directory "$(stat -c '%U %a' /var/lib/holdfast)"

systemctl --global enable holdfast-agent.socket
useradd -m bob
install -d -o bob /home/bob/.config/holdfast
echo 'device: none' >/home/bob/.config/holdfast/agent.yaml
loginctl enable-linger bob
socket=/run/user/$(id -u bob)/holdfast/agent.sock
until_exists "$socket"
say user-first "$(bob "$here/client" "$socket")"
bob systemctl --user reload holdfast-agent.service
say user-reload $?
status=/proc/$(bob systemctl --user show -p MainPID --value holdfast-agent.service)/status
say user-sandbox "$(awk '/^(NoNewPrivs|Seccomp):/ {print $2}' "$status" | xargs)"
bob systemctl --user kill -s KILL holdfast-agent.service
say user-after-kill "$(bob "$here/client" "$socket")"
journalctl --no-pager -u 'holdfast*' >&2
systemctl poweroff --force --force
