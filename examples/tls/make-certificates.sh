#!/bin/sh
# Makes a certificate authority and certificates for the three tiers of examples/configs, with openssl alone.
#
#     make-certificates.sh [DIRECTORY]                 make what is missing, renew what ends within a day or does not fit
#     make-certificates.sh --renew [DIRECTORY]         new keys and certificates for all tiers, by the same authority
#     make-certificates.sh --revoke NAME [DIRECTORY]   put the certificate of sidecar, rack or zone on the revocation list
#
# DIRECTORY is certificates/ next to this script unless given. To try things out and to copy from: an authority in
# production keeps its key somewhere else than on the machines it signs for.
set -eu
umask 077

DOMAIN=${DOMAIN:-example.com}
DAYS=${DAYS:-30}
CA_DAYS=${CA_DAYS:-365}

usage() {
  sed -n '2,/^set -eu/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2
  exit 2
}

mode=make
name=
case ${1-} in
  --renew) mode=renew; shift ;;
  --revoke)
    mode=revoke
    name=${2-}
    case $name in sidecar | rack | zone) ;; *) usage ;; esac
    shift 2
    ;;
  -*) usage ;;
esac
[ $# -le 1 ] || usage
directory=${1:-$(dirname "$0")/certificates}

command -v openssl >/dev/null || {
  echo "make-certificates.sh: openssl is not installed" >&2
  exit 1
}
mkdir -p "$directory/authority/issued"
cd "$directory"

# What openssl has to say is only of interest when it fails.
quietly() {
  "$@" 2>authority/log || {
    cat authority/log >&2
    exit 1
  }
}

# The authority's books: what it has issued, and what it has taken back.
cat >authority/openssl.cnf <<CONFIG
[ca]
default_ca = authority
[authority]
database = authority/index.txt
new_certs_dir = authority/issued
certificate = ca.crt
private_key = authority/ca.key
rand_serial = yes
crlnumber = authority/crlnumber
default_md = sha256
default_days = $DAYS
default_crl_days = 30
unique_subject = no
policy = policy
crl_extensions = crl
[policy]
commonName = supplied
[crl]
authorityKeyIdentifier = keyid:always
[request]
distinguished_name = name
prompt = no
[name]
commonName = Tributary example authority
[ca_extensions]
basicConstraints = critical, CA:true, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
CONFIG

key() {
  quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
  chmod 600 "$1"
}

# A file that others may read, put in place in one step: a collector that looks never sees half of it.
publish() {
  chmod 644 "$1"
  mv -f "$1" "$2"
}

authority() {
  if [ ! -e authority/ca.key ] || [ ! -e ca.crt ]; then
    key authority/ca.key
    quietly openssl req -config authority/openssl.cnf -section request -x509 -new -sha256 -days "$CA_DAYS" \
      -key authority/ca.key -extensions ca_extensions -out authority/ca.new
    publish authority/ca.new ca.crt
    # What another authority signed is worth nothing now.
    rm -f sidecar.crt rack.crt zone.crt crl.pem authority/index.txt authority/crlnumber
    made="$made ca.crt"
  fi
  [ -e authority/index.txt ] || : >authority/index.txt
  [ -e authority/crlnumber ] || echo 01 >authority/crlnumber
}

revocation_list() {
  quietly openssl ca -config authority/openssl.cnf -gencrl -out authority/crl.new
  publish authority/crl.new crl.pem
  made="$made crl.pem"
}

# issue NAME USES MORE_NAMES: a key, and a certificate that says what it may be used for. The first URI is the
# identity that a server stamps on what this client sends.
issue() {
  rm -rf authority/new
  mkdir authority/new
  key "authority/new/$1.key"
  cat >"authority/$1.ext" <<EXTENSIONS
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = $2
subjectAltName = URI:spiffe://$DOMAIN/$1, DNS:$1.$DOMAIN$3
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
EXTENSIONS
  quietly openssl req -config authority/openssl.cnf -section request -new -sha256 -subj "/CN=$1" \
    -key "authority/new/$1.key" -out "authority/$1.csr"
  quietly openssl ca -config authority/openssl.cnf -batch -notext -in "authority/$1.csr" \
    -extfile "authority/$1.ext" -out "authority/new/$1.crt"
  chmod 644 "authority/new/$1.crt"
  # Two files cannot be replaced in one step. By one process they are microseconds apart, and in the order in which
  # they are read, so that hardly anybody gets a pair that does not match. A running collector then keeps the old one
  # and looks again; one that starts just then says so and ends, and starts the next time.
  mv -f "authority/new/$1.crt" "authority/new/$1.key" .
  rm -rf authority/new "authority/$1.csr" "authority/$1.ext"
  made="$made $1.crt $1.key"
}

# Whether a pair is there, is one (who was interrupted may have replaced half of it), and is valid for another day.
is_fresh() {
  [ -e "$1.key" ] && [ -e "$1.crt" ] && openssl x509 -in "$1.crt" -noout -checkend 86400 >/dev/null 2>&1 &&
    [ "$(openssl x509 -in "$1.crt" -noout -pubkey 2>&1)" = "$(openssl pkey -in "$1.key" -pubout 2>&1)" ]
}

issue_if_needed() {
  if [ "$mode" = renew ] || ! is_fresh "$1"; then
    issue "$@"
  fi
}

made=
case $mode in
  revoke)
    [ -e "$name.crt" ] || {
      echo "make-certificates.sh: there is no $directory/$name.crt" >&2
      exit 1
    }
    quietly openssl ca -config authority/openssl.cnf -revoke "$name.crt"
    revocation_list
    echo "$directory/crl.pem now has the certificate of $name. A running collector takes it from there by itself,"
    echo "within its tls.reload_interval. --renew makes a new certificate."
    ;;
  *)
    here=", DNS:localhost, IP:127.0.0.1, IP:::1"
    authority
    issue_if_needed sidecar clientAuth ""
    issue_if_needed rack "serverAuth, clientAuth" "$here"
    issue_if_needed zone serverAuth "$here"
    # A list is good for a while only: without a valid one, servers refuse everybody.
    if [ "$mode" = renew ] || [ ! -e crl.pem ] || [ -n "$(find crl.pem -mtime +14)" ]; then
      revocation_list
    fi
    if [ -n "$made" ]; then
      echo "made in $directory:$made"
    else
      echo "nothing to do: everything in $directory is there and valid for another day"
    fi
    cat <<NEXT
now start the three tiers, each in a terminal of its own, from the zone to the sidecar:
    export TLS_DIR='$directory'
    collector --config=examples/configs/zone.yaml
    collector --config=examples/configs/rack.yaml
    collector --config=examples/configs/sidecar.yaml
and send telemetry to localhost:4317 or http://localhost:4318.
NEXT
    ;;
esac
rm -f authority/log
