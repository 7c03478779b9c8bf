//! One client after the other on the box's segment.

use std::{
    fs,
    path::Path,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use firstlight_api::status::DhcpMode;

use super::{
    common::isolated,
    needs,
    segment::{Running, Server, Stick, run, status, wait_for, wait_for_dhcp},
};

/// Nothing of the machine is written to, and the users that clients give root up for are root: no other exists in here.
pub fn apart(stick: &Stick) {
    for folder in ["/run", "/var/lib"] {
        run("mount", &["-t", "tmpfs", "tmpfs", folder]);
    }
    // systemd-networkd waits for udev where devices can be changed.
    run("mount", &["-t", "sysfs", "-o", "ro", "sysfs", "/sys"]);
    stick.write(
        "passwd",
        b"root:x:0:0::/root:/bin/sh\nsystemd-network:x:0:0::/:/bin/sh\n",
    );
    for folder in ["links", "leases", "lldp"] {
        fs::create_dir_all(Path::new("/run/systemd/netif").join(folder)).unwrap();
    }
    let passwd = stick.path("passwd");
    run(
        "mount",
        &["--bind", passwd.to_str().unwrap(), "/etc/passwd"],
    );
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// What a client did to its NIC.
fn address(server: &Server) -> Option<String> {
    let shown = server.run("ip", &["-4", "-o", "address", "show", "dev", "fl-host"]);
    let mut words = shown.split_whitespace();
    words.find(|word| *word == "inet")?;
    words.next().map(str::to_owned)
}

fn clear(server: &Server) {
    server.run("ip", &["address", "flush", "dev", "fl-host"]);
    server.run("ip", &["link", "set", "fl-host", "up"]);
}

/// `client` ends once it has its lease, or works until it is ended.
fn gets_an_address(server: &Server, client: &str, arguments: &[&str]) {
    clear(server);
    let child = server
        .command(client)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn();
    let _child = Running(child.unwrap());
    let address = wait_for(client, || address(server));
    assert_eq!(address, "172.22.0.100/24", "{client}");
}

#[test]
fn every_dhcp_client_gets_the_same_address() {
    isolated("every::every_dhcp_client_gets_the_same_address", || {
        for (program, package) in [
            ("busybox", "busybox"),
            ("dhcpcd", "dhcpcd-base"),
            ("dhclient", "isc-dhcp-client"),
            ("dhclient-script", "isc-dhcp-client"),
            ("systemd-networkd", "systemd"),
            ("perfdhcp", "kea-admin"),
        ] {
            needs(program, package);
        }
        let (stick, server) = (Stick::new(), Server::connect());
        apart(&stick);
        let _agent = stick.start_agent();
        wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);

        let lease = server.dhcp(&stick.script());
        assert!(lease.starts_with("ip=172.22.0.100 mask=24 "), "{lease}");

        gets_an_address(
            &server,
            "dhcpcd",
            &["-4", "-B", "-f", "/dev/null", "-c", "/bin/true", "fl-host"],
        );

        let (leases, pid) = (stick.path("dhclient.leases"), stick.path("dhclient.pid"));
        gets_an_address(
            &server,
            "dhclient",
            &[
                "-4",
                "-d",
                "-cf",
                "/dev/null",
                "-lf",
                leases.to_str().unwrap(),
                "-pf",
                pid.to_str().unwrap(),
                "fl-host",
            ],
        );

        fs::create_dir_all("/run/systemd/network").unwrap();
        fs::write(
            "/run/systemd/network/host.network",
            "[Match]\nName=fl-host\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
        )
        .unwrap();
        gets_an_address(&server, "/lib/systemd/systemd-networkd", &[]);
    });
}

#[test]
fn firmware_that_asks_by_ipv6_is_named() {
    isolated("every::firmware_that_asks_by_ipv6_is_named", || {
        needs("dhclient", "isc-dhcp-client");
        let (stick, server) = (Stick::new(), Server::connect());
        let _agent = stick.start_agent();
        wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
        stick.write(
            "dhclient6.conf",
            b"option dhcp6.architecture code 61 = string;\nsend dhcp6.architecture 00:07;\n",
        );
        let [conf, leases, pid] =
            ["dhclient6.conf", "dhclient6.leases", "dhclient6.pid"].map(|name| stick.path(name));
        let client = server
            .command("dhclient")
            .args(["-6", "-d", "-D", "LL", "-cf", conf.to_str().unwrap()])
            .args(["-lf", leases.to_str().unwrap()])
            .args(["-pf", pid.to_str().unwrap(), "fl-host"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let _client = Running(client.unwrap());
        let link = server.run("ip", &["-o", "link", "show", "dev", "fl-host"]);
        let mut words = link.split_whitespace();
        words.find(|word| *word == "link/ether").unwrap();
        let mac = words.next().unwrap();
        let told = wait_for("the problem", || {
            let problems = status()?.problems;
            problems.into_iter().find(|it| it.what.contains("IPv6"))
        });
        assert!(told.what.contains(mac), "{}", told.what);
    });
}

#[test]
fn perfdhcp_finds_no_exchange_lost() {
    isolated("every::perfdhcp_finds_no_exchange_lost", || {
        needs("perfdhcp", "kea-admin");
        let (stick, server) = (Stick::new(), Server::connect());
        server.run("ip", &["address", "add", "172.22.0.9/24", "dev", "fl-host"]);
        let _agent = stick.start_agent();
        wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
        // 30 clients, as a rack that is switched on.
        let output = server
            .command("perfdhcp")
            .args(["-4", "-l", "fl-host", "-r", "10", "-R", "30", "-n", "60"])
            .args(["-g", "single", "-W", "5000000", "172.22.0.1"])
            .output()
            .unwrap();
        let said = said(&output);
        let of = |what: &str| -> Vec<u32> {
            let lines = said.lines().filter_map(|line| line.strip_prefix(what));
            lines
                .filter_map(|value| value.trim().parse().ok())
                .collect()
        };
        assert_eq!(of("received packets:"), [60, 60], "{said}");
        assert_eq!(of("drops:"), [0, 0], "{said}");
    });
}

#[test]
fn every_client_loads_what_it_boots() {
    isolated("every::every_client_loads_what_it_boots", || {
        for (program, package) in [("curl", "curl"), ("atftp", "atftp"), ("tftp", "tftp-hpa")] {
            needs(program, package);
        }
        let (stick, server) = (Stick::new(), Server::connect());
        server.run("ip", &["address", "add", "172.22.0.9/24", "dev", "fl-host"]);
        let _agent = stick.start_agent();
        wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
        let file = stick.path("out");
        let out = file.to_str().unwrap();
        let iso = "/boot/kernel";
        let url = format!("http://172.22.0.1{iso}");
        let loader = &stick.kernel[..100_000];
        let tftp = |client: &str, arguments: &[&str]| {
            drop(fs::remove_file(&file));
            server.run(client, arguments);
            assert!(fs::read(&file).unwrap() == loader, "{client} {arguments:?}");
        };
        let of_curl = "tftp://172.22.0.1/undionly.kpxe";
        tftp("curl", &["-sf", "-m", "60", "-o", out, of_curl]);
        for options in [
            ["blksize 512", "windowsize 1"],
            ["blksize 1428", "windowsize 8"],
        ] {
            let [block, window] = options;
            tftp(
                "atftp",
                &[
                    "--option",
                    block,
                    "--option",
                    window,
                    "--get",
                    "-r",
                    "undionly.kpxe",
                    "-l",
                    out,
                    "172.22.0.1",
                ],
            );
        }
        tftp(
            "tftp",
            &[
                "-m",
                "binary",
                "172.22.0.1",
                "-c",
                "get",
                "undionly.kpxe",
                out,
            ],
        );
        // HTTP as loaders and scripts speak it: whole, in parts, only the head, several over one connection.
        let kernel = &stick.kernel;
        let curl = |arguments: &[&str]| {
            drop(fs::remove_file(&file));
            let told = server.run(
                "curl",
                &[&["-sf", "-m", "60", "-o", out], arguments].concat(),
            );
            (told, fs::read(&file).unwrap_or_default())
        };
        assert!(curl(&[&url]).1 == *kernel);
        assert!(curl(&["-r", "1000-1999", &url]).1 == kernel[1000..2000]);
        assert!(curl(&["-r", "-500", &url]).1 == kernel[kernel.len() - 500..]);
        let heads = curl(&["-I", "-w", "%{num_connects}", &url, "-o", out, &url]);
        assert_eq!(
            heads.0, "10",
            "the second request over the first connection"
        );
        let length = format!("content-length: {}", kernel.len());
        let head = String::from_utf8_lossy(&heads.1).to_lowercase();
        assert!(head.contains(&length), "{head}");
    });
}

#[test]
fn files_keep_to_the_bandwidth_of_the_site() {
    isolated("every::files_keep_to_the_bandwidth_of_the_site", || {
        needs("curl", "curl");
        let (stick, server) = (Stick::new(), Server::connect());
        let site = b"provisioning: {interface: fl-box, bandwidth: 4 Mbit/s}\n";
        stick.write("firstlight/site/site.yaml", site);
        server.run("ip", &["address", "add", "172.22.0.9/24", "dev", "fl-host"]);
        let _agent = stick.start_agent();
        wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
        let out = stick.path("out");
        // By the kernel, and by hyper.
        for version in ["--http1.1", "--http1.0"] {
            drop(fs::remove_file(&out));
            let began = Instant::now();
            let name = out.to_str().unwrap();
            let url = "http://172.22.0.1/boot/kernel";
            server.run("curl", &["-sf", "-m", "60", version, "-o", name, url]);
            let took = began.elapsed();
            assert!(fs::read(&out).unwrap() == stick.kernel, "{version}");
            // 700 kB, of which the last piece needs not be over: 1.3 s at 500 kB/s.
            assert!(took > Duration::from_secs(1), "{version}: {took:?}");
        }
    });
}
