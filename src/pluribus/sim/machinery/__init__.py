"""The parts of worlds: virtual time, hosts, network, disks, chaos, histories, campaigns."""
