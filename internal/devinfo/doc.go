// Package devinfo keeps device-info files (device-info specification 1.1) where plugins of
// the host look for them: it hands on what a device plugin says of a device to the CNI
// plugins, and reads what they make of it. It satisfies attach.DeviceInfo; the plugin uses
// it, on the host or, with a root, in the daemon.
//
// It does not judge what the files say, beyond that it is a JSON object of a sensible size.
package devinfo
