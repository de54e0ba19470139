#!/bin/sh
# Records the present busybox-static of Debian's stable release, for every platform
# of the images, in image/debian.lock: run it to take up Debian's fixes, or when the
# recorded version has left the mirrors. It uses a private apt state and installs nothing.
set -eu
cd "$(dirname "$0")"
suite=${SUITE:-trixie}
mirror=${MIRROR:-http://deb.debian.org/debian}

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
for of in "$suite" "$suite-updates"; do
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $of main"
done >"$state/sources.list"
cat >"$state/apt.conf" <<-EOF
	Dir::Etc::SourceList "$state/sources.list";
	Dir::Etc::SourceParts "/dev/null";
	Dir::State::Lists "$state/lists";
	Dir::State::Status "/dev/null";
	Dir::Cache "$state/cache";
	APT::Architectures { "amd64"; "arm64"; "armhf"; "ppc64el"; "s390x"; };
	Acquire::Languages "none";
	APT::Sandbox::User "root";
EOF
export APT_CONFIG="$state/apt.conf"
apt-get update -qq

# value FIELD of the package's record on standard input.
value() { sed -n "s/^$1: //p" "$state/record"; }
{
	echo "# Written by image/lock.sh from Debian $suite: the package that the images take /bin/sh, cat and cp from."
	echo "mirror http://deb.debian.org/debian"
	echo "mirror http://snapshot.debian.org/archive/debian/$(date -u +%Y%m%dT%H%M%SZ)"
	for arch in amd64 arm64 armhf ppc64el s390x; do
		apt-cache show --no-all-versions "busybox-static:$arch" >"$state/record"
		echo "deb $arch busybox-static $(value Version) $(value Filename) $(value SHA256)"
	done
	(cd "$state" && apt-get download -qq busybox-static && dpkg-deb --extract ./*.deb .)
	echo "applets $("$state/usr/bin/busybox" --list | grep -vx busybox | tr '\n' ' ')"
} >"$state/debian.lock"
cp "$state/debian.lock" debian.lock
