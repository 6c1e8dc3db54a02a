/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over TLS, with and without certificates of clients; who is let in and who is not. */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include "base/rand.h"
#include "rpc/rpc.h"
#include "unit/rpc_raw.h"
#include "unit/rpc_rig.h"

/* ---- certificates, made anew for each run --------------------------------------------------- */

struct identity {
    EVP_PKEY *key;
    X509 *cert;
    char cert_file[64], key_file[64];
};

static char folder[32] = "/tmp/mr-tls-XXXXXX";
static struct identity ca, other_ca, server, client, stranger;

static void extend(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void write_files(struct identity *identity, const char *name)
{
    snprintf(identity->cert_file, sizeof identity->cert_file, "%s/%s.pem", folder, name);
    snprintf(identity->key_file, sizeof identity->key_file, "%s/%s.key", folder, name);
    FILE *file = fopen(identity->cert_file, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, identity->cert), 1);
    assert_int_equal(fclose(file), 0);
    file = fopen(identity->key_file, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, identity->key, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(file), 0);
}

/* issuer NULL: signs itself, and others. */
static void make(struct identity *identity, const char *name, const char *alt,
                 const struct identity *issuer)
{
    static long serial = 1;
    identity->key = EVP_EC_gen("P-256");
    identity->cert = X509_new();
    assert_true(identity->key != NULL && identity->cert != NULL);
    X509 *cert = identity->cert;
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, identity->key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, issuer != NULL ? X509_get_subject_name(issuer->cert) : subject);
    if (issuer == NULL)
        extend(cert, NID_basic_constraints, "critical,CA:TRUE");
    if (alt != NULL)
        extend(cert, NID_subject_alt_name, alt);
    assert_true(X509_sign(cert, issuer != NULL ? issuer->key : identity->key, EVP_sha256()) > 0);
    write_files(identity, name);
}

static int make_all(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    make(&ca, "ca", NULL, NULL);
    make(&other_ca, "other-ca", NULL, NULL);
    make(&server, "server", "DNS:tasks.example,IP:127.0.0.1", &ca);
    make(&client, "client", NULL, &ca);
    make(&stranger, "stranger", NULL, &other_ca);
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    struct identity *const all[] = {&ca, &other_ca, &server, &client, &stranger};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        unlink(all[i]->cert_file);
        unlink(all[i]->key_file);
        EVP_PKEY_free(all[i]->key);
        X509_free(all[i]->cert);
    }
    rmdir(folder);
    return 0;
}

static struct mr_rpc_tls server_tls(void)
{
    return (struct mr_rpc_tls){.cert_file = server.cert_file, .key_file = server.key_file};
}

static struct mr_rpc_tls mutual_tls(void)
{
    struct mr_rpc_tls tls = server_tls();
    tls.ca_file = ca.cert_file;
    return tls;
}

static struct rig *start(const struct mr_rpc_tls *of_server, const struct mr_rpc_tls *of_client)
{
    struct rig *rig = rig_new(NULL, NULL);
    rig_listen(rig, "127.0.0.1:0", of_server);
    rig_connect(rig, of_client);
    return rig;
}

/* ---- who gets in ---------------------------------------------------------------------------- */

static void assert_works(struct rig *rig)
{
    assert_true(mr_event_wait(&rig->up, patience_ns));
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe_send(&probe, "secret");
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_last(&probe, "secret");
    probe_done(&probe);
}

static void a_client_that_trusts_the_server_gets_in(void **state)
{
    (void)state;
    struct mr_rpc_tls of_server = server_tls();
    struct mr_rpc_tls by_number = {.ca_file = ca.cert_file};
    struct mr_rpc_tls by_name = {.ca_file = ca.cert_file, .server_name = "tasks.example"};
    struct rig *rig = start(&of_server, &by_number);
    assert_works(rig);
    rig_stop(rig);
    rig = start(&of_server, &by_name);
    assert_works(rig);
    rig_stop(rig);
}

static void much_goes_both_ways(void **state)
{
    (void)state;
    struct mr_rpc_tls of_server = server_tls(), of_client = {.ca_file = ca.cert_file};
    struct rig *rig = start(&of_server, &of_client);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    struct probe down, up;
    probe_begin(rig, &down, "/t/Count", 0);
    probe_send(&down, "5000 3000");
    probe_begin(rig, &up, "/t/Sum", 0);
    char block[3000];
    memset(block, 'x', sizeof block);
    assert_int_equal(probe_send_times(&up, mr_slice_make(block, sizeof block), 5000), MR_OK);
    probe_half_close(&up);
    assert_int_equal(probe_end(&up), MR_RPC_OK);
    assert_last(&up, "5000 messages, 15000000 bytes");
    assert_int_equal(probe_end(&down), MR_RPC_OK);
    assert_int_equal(down.bytes, 15000000);
    assert_quiet();
    probe_done(&up);
    probe_done(&down);
    rig_stop(rig);
}

static void assert_kept_out(const struct mr_rpc_tls *of_server, const struct mr_rpc_tls *of_client,
                            const char *why)
{
    struct rig *rig = start(of_server, of_client);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    if (strstr(rig->why, why) == NULL)
        fail_msg("expected '%s', got '%s'", why, rig->why);
    rig_stop(rig);
}

static void a_client_refuses_a_server_it_does_not_trust(void **state)
{
    (void)state;
    struct mr_rpc_tls of_server = server_tls();
    struct mr_rpc_tls wrong_ca = {.ca_file = other_ca.cert_file};
    assert_kept_out(&of_server, &wrong_ca, "certificate");
    struct mr_rpc_tls system_ca = {0};
    assert_kept_out(&of_server, &system_ca, "certificate");
    struct mr_rpc_tls wrong_name = {.ca_file = ca.cert_file, .server_name = "else.example"};
    assert_kept_out(&of_server, &wrong_name, "hostname mismatch");
    struct mr_rpc_tls wrong_number = {.ca_file = ca.cert_file, .server_name = "127.0.0.2"};
    assert_kept_out(&of_server, &wrong_number, "IP address mismatch");
}

static void mutual_tls_wants_a_certificate_of_the_right_authority(void **state)
{
    (void)state;
    struct mr_rpc_tls of_server = mutual_tls();
    struct mr_rpc_tls good = {
        .cert_file = client.cert_file, .key_file = client.key_file, .ca_file = ca.cert_file};
    struct rig *rig = start(&of_server, &good);
    assert_works(rig);
    rig_stop(rig);
    struct mr_rpc_tls none = {.ca_file = ca.cert_file};
    struct mr_rpc_tls foreign = {
        .cert_file = stranger.cert_file, .key_file = stranger.key_file, .ca_file = ca.cert_file};
    /* With TLS 1.3 the client hears of it only after its own side is done, and has sent more. */
    assert_kept_out(&of_server, &none, "TLS: reading: tlsv13 alert certificate required");
    assert_kept_out(&of_server, &foreign, "TLS: reading: tlsv1 alert unknown ca");
}

static void plain_and_tls_do_not_meet(void **state)
{
    (void)state;
    struct mr_rpc_tls of_server = server_tls(), of_client = {.ca_file = ca.cert_file};
    assert_kept_out(&of_server, NULL, "");
    assert_kept_out(NULL, &of_client, "TLS");
}

/* ---- by hand -------------------------------------------------------------------------------- */

/* Whether a client with these settings ends its handshake. */
static bool shakes_hands(struct rig *rig, int max_version, const char *alpn)
{
    struct raw raw;
    raw_open(&raw, rig->port);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(ctx);
    SSL_CTX_set_security_level(ctx, 0);
    SSL_CTX_set_min_proto_version(ctx, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(ctx, max_version);
    SSL *ssl = SSL_new(ctx);
    assert_non_null(ssl);
    if (alpn != NULL)
        SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    SSL_set_fd(ssl, raw.fd);
    char byte;
    /* The server's settings come right behind the handshake of one that is welcome. */
    bool good = SSL_connect(ssl) == 1 && SSL_read(ssl, &byte, 1) == 1;
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    raw_close(&raw);
    return good;
}

static void old_versions_and_other_protocols_are_refused(void **state)
{
    (void)state;
    struct mr_rpc_tls of_server = server_tls(), of_client = {.ca_file = ca.cert_file};
    struct rig *rig = start(&of_server, &of_client);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    assert_true(shakes_hands(rig, TLS1_3_VERSION, "\x02h2"));
    assert_true(shakes_hands(rig, TLS1_2_VERSION, "\x08http/1.1\x02h2"));
    assert_false(shakes_hands(rig, TLS1_1_VERSION, "\x02h2"));
    assert_false(shakes_hands(rig, TLS1_3_VERSION, "\x08http/1.1"));
    assert_false(shakes_hands(rig, TLS1_3_VERSION, NULL));
    assert_works(rig);
    rig_stop(rig);
}

static void a_handshake_that_does_not_end_is_cut(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.handshake_ms = 200};
    struct rig *rig = rig_new(&limits, NULL);
    struct mr_rpc_tls of_server = server_tls();
    rig_listen(rig, "127.0.0.1:0", &of_server);
    struct raw silent, half;
    raw_open(&silent, rig->port);
    raw_open(&half, rig->port);
    raw_bytes(&half, "\x16\x03\x01\x02\x00\x01", 6);
    (void)raw_until_closed(&silent);
    (void)raw_until_closed(&half);
    raw_close(&silent);
    raw_close(&half);
    rig_stop(rig);
}

/* Bytes of chance, with a right beginning or not. */
static void garbage_instead_of_tls_harms_nobody(void **state)
{
    (void)state;
    struct mr_rpc_tls of_server = server_tls(), of_client = {.ca_file = ca.cert_file};
    struct rig *rig = start(&of_server, &of_client);
    struct mr_rand rand;
    mr_rand_seed(&rand, 5);
    for (int i = 0; i < 300; i++) {
        struct raw raw;
        uint8_t bytes[600];
        size_t len = mr_rand_below(&rand, sizeof bytes);
        mr_rand_bytes(&rand, bytes, len);
        if (i % 3 > 0 && len > 9) { /* a handshake, and of them a ClientHello */
            memcpy(bytes, "\x16\x03\x01\x00\x80", 5);
            bytes[5] = i % 3 == 1 ? 1 : bytes[5];
        }
        raw_open(&raw, rig->port);
        raw_bytes(&raw, bytes, len);
        shutdown(raw.fd, SHUT_WR);
        while (recv(raw.fd, bytes, sizeof bytes, 0) > 0)
            continue;
        raw_close(&raw);
    }
    assert_works(rig);
    assert_int_equal(atomic_load(&rig->ups), 1);
    rig_stop(rig);
}

static void files_that_cannot_be_used_are_named(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL, NULL);
    const struct mr_rpc_tls rows[] = {
        {.cert_file = "/nowhere/cert.pem", .key_file = server.key_file},
        {.cert_file = server.cert_file, .key_file = "/nowhere/key.pem"},
        {.cert_file = server.cert_file, .key_file = client.key_file},
        {.cert_file = server.cert_file, .key_file = server.key_file, .ca_file = "/nowhere/ca.pem"},
        {.cert_file = server.cert_file},
        {.cert_file = server.key_file, .key_file = server.key_file},
    };
    static const char *const named[] = {
        "/nowhere/cert.pem", "/nowhere/key.pem", "client.key", "/nowhere/ca.pem", "key",
        "server.key"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_detail detail = {""};
        struct mr_rpc_service service = {.address = "127.0.0.1:0", .tls = &rows[i]};
        assert_int_equal(mr_rpc_listen(rig->server, &service, NULL, &detail), MR_INVALID);
        assert_non_null(strstr(detail.text, named[i]));
        struct mr_channel *channel;
        struct mr_channel_options options = {.address = "127.0.0.1:1", .tls = &rows[i]};
        assert_int_equal(mr_channel_new(rig->client, &options, &channel, &detail), MR_INVALID);
    }
    rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_trusts_the_server_gets_in),
        cmocka_unit_test(much_goes_both_ways),
        cmocka_unit_test(a_client_refuses_a_server_it_does_not_trust),
        cmocka_unit_test(mutual_tls_wants_a_certificate_of_the_right_authority),
        cmocka_unit_test(plain_and_tls_do_not_meet),
        cmocka_unit_test(old_versions_and_other_protocols_are_refused),
        cmocka_unit_test(a_handshake_that_does_not_end_is_cut),
        cmocka_unit_test(garbage_instead_of_tls_harms_nobody),
        cmocka_unit_test(files_that_cannot_be_used_are_named),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
