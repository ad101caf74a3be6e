"""Options of mosquitto.conf that have no counterpart, and what to tell about each."""

# Nothing is lost without them.
NOT_NEEDED = {
    "allow_duplicate_messages": "a client with overlapping subscriptions is served as MQTT says",
    "autosave_interval": "what must survive is written before it is acknowledged",
    "autosave_on_changes": "what must survive is written before it is acknowledged",
    "check_retain_source": "rights are checked when a message is published and when it is delivered",
    "connection_messages": "connections are counted; refused ones are in the log",
    "dhparamfile": "TLS uses elliptic curves",
    "log_facility": "logs go to standard error; the service manager files them",
    "log_timestamp": "every line of the log has its time",
    "log_timestamp_format": "every line of the log has its time, ISO 8601",
    "max_inflight_bytes": "the number of messages in flight is bounded, and so are the bytes that wait",
    "persistence_file": "the store is tidegate.db in the data folder",
    "pid_file": "the service manager knows the process",
    "retry_interval": "MQTT sends again after a reconnect only",
    "set_tcp_nodelay": "TCP_NODELAY is always on",
    "store_clean_interval": "there is no such sweep",
    "user": "the service manager chooses the user; see packaging/tidegate.service",
    "websockets_headers_size": "headers of any usual size are read",
    "websockets_log_level": "there is one log level, log.level",
}

# Something is lost, but nobody gets in or at more than before.
LOST = {
    "auto_id_prefix": "clients without an identifier get one that the broker makes up",
    "ciphers": "TLS 1.2 and 1.3 with OpenSSL's present choice of ciphers",
    "ciphers_tls1.3": "TLS 1.2 and 1.3 with OpenSSL's present choice of ciphers",
    "global_max_clients": "sessions are bounded by limits.max_sessions",
    "http_dir": "serve files with a web server beside the broker",
    "retain_expiry_interval": "give retained messages a Message Expiry Interval",
    "tls_engine": "keys are read from PEM files",
    "tls_engine_kpass_sha1": "keys are read from PEM files",
    "tls_keyform": "keys are read from PEM files",
    "upgrade_outgoing_qos": "a message is delivered with the QoS it was published with, or a lower one",
}

# Without these, somebody could do more than before: what they were about is kept on the loopback address.
GUARDS = {
    "auth_plugin": "use accounts.password_file and rights_file, or a hook; see docs/embedding.md",
    "capath": "put the certificates of your authorities into one file and set client_ca to it",
    "clientid_prefixes": "write rights with %c, or use accounts",
    "crlfile": "revoke by accounts and rights: give each certificate's user its own, and remove them",
    "global_plugin": "use accounts.password_file and rights_file, or a hook; see docs/embedding.md",
    "mount_point": "write rights that keep these clients below their prefix",
    "plugin": "use accounts.password_file and rights_file, or a hook; see docs/embedding.md",
    "plugin_load": "use accounts.password_file and rights_file, or a hook; see docs/embedding.md",
    "plugin_use": "use accounts.password_file and rights_file, or a hook; see docs/embedding.md",
    "psk_file": 'use certificates (type = "tls"); there are no pre-shared keys',
    "psk_hint": 'use certificates (type = "tls"); there are no pre-shared keys',
    "use_subject_as_username": 'set accounts.certificate_identity to "cn" or "san"',
    "use_username_as_clientid": "write rights with %u instead of %c: here clients choose their identifiers",
}
# Of the above, those about the listener they stand below.
LISTENER_GUARDS = frozenset(
    {
        "capath", "crlfile", "mount_point", "psk_hint", "use_subject_as_username", "use_username_as_clientid",
    }
)  # fmt: skip
# Of the above: said only if it is switched on.
SWITCHES = frozenset({"upgrade_outgoing_qos", "use_subject_as_username", "use_username_as_clientid"})
PLUGIN_OPTIONS = ("auth_opt_", "plugin_opt_", "auth_plugin_deny")

BRIDGE_HINT = (
    "there are no bridges: keep this part in a small Mosquitto beside Tidegate that connects to both,"
    " or let a client of both brokers pass the messages on; see docs/migrating.md"
)
BRIDGE = frozenset(
    {
        "address", "addresses", "bridge_alpn", "bridge_attempt_unsubscribe", "bridge_bind_address",
        "bridge_cafile", "bridge_capath", "bridge_certfile", "bridge_identity", "bridge_insecure",
        "bridge_keyfile", "bridge_max_packet_size", "bridge_max_topic_alias", "bridge_outgoing_retain",
        "bridge_protocol_version", "bridge_psk", "bridge_receive_maximum", "bridge_reload_type",
        "bridge_require_ocsp", "bridge_session_expiry_interval", "bridge_tcp_keepalive",
        "bridge_tcp_user_timeout", "bridge_tls_use_os_certs", "bridge_tls_version", "cleansession", "clientid",
        "connection", "idle_timeout", "keepalive_interval", "local_cleansession", "local_clientid",
        "local_password", "local_username", "notification_topic", "notifications", "notifications_local_only",
        "password", "remote_clientid", "remote_password", "remote_username", "restart_timeout", "round_robin",
        "start_type", "threshold", "topic", "try_private", "username",
    }
)  # fmt: skip
