"""What worlds are made of: virtual time, hosts, network, disks, chaos, histories, campaigns."""
