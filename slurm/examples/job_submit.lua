-- nearmetal: adds the GRES that a job's --vm-vf and --vm-region ask for, so that Slurm keeps
-- VFs and memory for it. The plugin says what they are in the job's SPANK environment
-- (NEARMETAL_GRES=vf:mlx5:1,region:512M). A site that has a job_submit.lua of its own copies
-- the function and calls it from its slurm_job_submit.

local function nearmetal_add_gres(job_desc)
	for _, entry in pairs(job_desc.spank_job_env or {}) do
		-- Written by a user's environment in the end: nothing but names and numbers is taken.
		local list = string.match(entry, "NEARMETAL_GRES=([%w_:,.]+)$")
		if list ~= nil and #list < 256 then
			local tres = job_desc.tres_per_node or ""
			for item in string.gmatch(list, "[^,]+") do
				local name = string.match(item, "^(%a+):")
				if name ~= "vf" and name ~= "region" then
					slurm.log_user("nearmetal: %s is not a resource of VMs", item)
					return slurm.ERROR
				end
				-- What the user asked for by --gres himself stays as it is.
				if not string.find("," .. tres, "[,:/]" .. name .. ":") then
					tres = tres .. (tres ~= "" and "," or "") .. "gres:" .. item
				end
			end
			job_desc.tres_per_node = tres
		end
	end
	return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	return nearmetal_add_gres(job_desc)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return slurm.SUCCESS
end
